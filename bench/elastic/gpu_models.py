"""`python gpu_models.py convolutions|gpt|lstm`: trains a small model of a usual kind on the GPU, and prints its sha256.

With `--hold FILE` every step takes longer until that file is there, so that workers can be killed meanwhile.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch import nn

from torchyard import elastic

RECORDS, BATCH, PARTS, EPOCHS = 1200, 32, 4, 4
functional = nn.functional


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)]
        layers += [nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Dropout(0.2)]
        self.net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))

    def forward(self, seeds: torch.Tensor) -> torch.Tensor:
        waves = torch.sin(seeds.float())
        images = (waves.unsqueeze(2) * waves.unsqueeze(1)).unsqueeze(1).repeat(1, 3, 1, 1)
        output: torch.Tensor = self.net(images)
        return output


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.1, batch_first=True, norm_first=True)
        self.tokens, self.places = nn.Embedding(64, 128), nn.Embedding(32, 128)
        self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(128, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        embedded = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        output: torch.Tensor = self.head(self.layers(embedded, mask=mask, is_causal=True)[:, -1])
        return output


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.cells = nn.Embedding(64, 64), nn.LSTM(64, 128, num_layers=2, dropout=0.1, batch_first=True)
        self.head = nn.Linear(128, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.head(self.cells(self.tokens(tokens))[0][:, -1])
        return output


MODELS: dict[str, type[nn.Module]] = {"convolutions": Convolutions, "gpt": Gpt, "lstm": Lstm}
parser = argparse.ArgumentParser()
parser.add_argument("model", choices=list(MODELS))
parser.add_argument("--device", default="cuda")
parser.add_argument("--hold", default="")
options = parser.parse_args()

job = elastic.join(seed=5)
source = torch.Generator().manual_seed(1)
data = torch.utils.data.TensorDataset(
    torch.randint(0, 64, (RECORDS, 32), generator=source), torch.randint(0, 10, (RECORDS,), generator=source)
)
model = MODELS[options.model]().to(options.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)


def loss_of(batch: Any) -> torch.Tensor:
    inputs, labels = (part.to(options.device) for part in batch)
    with torch.autocast(options.device, torch.bfloat16):
        outputs = model(inputs)
    return functional.cross_entropy(outputs.float(), labels)


for _ in job.train(
    model,
    optimizer,
    loss=loss_of,
    data=data,
    batch=BATCH,
    micro_batches=PARTS,
    epochs=EPOCHS,
    scheduler=scheduler,
    clip_norm=1.0,
):
    if options.hold and not Path(options.hold).exists():
        time.sleep(0.5)
print(f"digest {job.digest} {options.model} {options.device}", flush=True)
