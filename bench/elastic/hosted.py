"""`python hosted.py transformers|lightning bare|elastic FOLDER`: trains a small model, and prints a step's time."""

from __future__ import annotations

import statistics
import sys
import time
from itertools import pairwise
from typing import Any

import torch

from torchyard import elastic

PACKAGE, KIND, FOLDER = sys.argv[1:4]
RECORDS, STEPS, PARTS = 64, 60, 4
WARM_UP = 10
job = elastic.join(seed=1)
times: list[float] = []


def print_median() -> None:
    print(f"median {statistics.median(b - a for a, b in pairwise(times[WARM_UP:])) * 1000:.3f}")


def transformers_trainer() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            times.append(time.perf_counter())

    model = GPT2LMHeadModel(GPT2Config(vocab_size=512, n_embd=128, n_layer=2, n_head=4, n_positions=64))
    data = [{"input_ids": torch.arange(64) % 512, "labels": torch.arange(64) % 512} for _ in range(RECORDS)]
    arguments = TrainingArguments(
        FOLDER,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=PARTS,
        max_steps=STEPS,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[Clock()])
    if KIND == "elastic":
        from torchyard.elastic import huggingface

        huggingface.attach(job, trainer)
    trainer.train()


def lightning_trainer() -> None:
    from lightning.pytorch import Callback, LightningModule, Trainer

    from torchyard.elastic.lightning import ElasticStrategy

    class Clock(Callback):  # type: ignore[misc]
        def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
            times.append(time.perf_counter())

    class Module(LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            layers = [torch.nn.Linear(1024, 1024) for _ in range(4)]
            self.net = torch.nn.Sequential(*layers)

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            output: torch.Tensor = self.net(batch[0]).pow(2).mean()
            return output

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    data = torch.utils.data.TensorDataset(torch.randn(256 * 10, 1024))
    parts = PARTS if KIND == "elastic" else 1
    strategy: Any = ElasticStrategy(job, micro_batches=parts) if KIND == "elastic" else "auto"
    trainer = Trainer(
        strategy=strategy,
        accelerator="cpu",
        devices=1,
        max_steps=STEPS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Clock()],
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(data, batch_size=256))


transformers_trainer() if PACKAGE == "transformers" else lightning_trainer()
print_median()
