"""A small module with Lightning: `python lightning_module.py lightning FOLDER`. With ZOO_HOLD, a step waits for it."""

from __future__ import annotations

import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from torchyard import elastic
from torchyard.elastic.lightning import ElasticStrategy
from torchyard.elastic.world.coordinator_client import WorkerStopped

warnings.filterwarnings("ignore")
FOLDER = Path(sys.argv[2])
SOURCE = torch.Generator().manual_seed(1)
DATA = TensorDataset(torch.randn(72, 8, generator=SOURCE), torch.randint(0, 4, (72,), generator=SOURCE))
job = elastic.join(seed=42)


class Classifier(LightningModule):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.1), nn.ReLU(), nn.Linear(16, 4))
        self.validations: list[float] = []

    def training_step(self, batch: Any, batch_index: int) -> torch.Tensor:
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch: Any, batch_index: int) -> None:
        self.log("val_loss", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=15)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Hold(Callback):  # type: ignore[misc]
    """Waits for the file ZOO_HOLD after the first steps, but lets the world change at every step."""

    def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
        path, runtime = os.environ.get("ZOO_HOLD"), job._started()
        while path and runtime.step >= 3 and not Path(path).exists():
            try:
                if runtime.rendezvous_pending():
                    return
            except WorkerStopped:
                return
            time.sleep(0.005)


module = Classifier()
trainer = Trainer(
    strategy=ElasticStrategy(job, micro_batches=4, digest_every=5, mode=os.environ.get("ZOO_MODE", "strict")),
    accelerator="cpu",
    devices=1,
    max_epochs=3,
    gradient_clip_val=0.5,
    logger=CSVLogger(str(FOLDER)),
    callbacks=[Hold(), ModelCheckpoint(str(FOLDER / "checkpoints"), every_n_train_steps=5, save_top_k=-1)],
    enable_progress_bar=False,
    enable_model_summary=False,
    num_sanity_val_steps=0,
    log_every_n_steps=2,
)
trainer.fit(module, DataLoader(DATA, batch_size=16, shuffle=True), DataLoader(DATA, batch_size=24))
print(f"digest {job.digest}", flush=True)
print(f"sum {sum(float(p.detach().double().abs().sum()) for p in module.parameters())}", flush=True)
print(
    f"logs {trainer.global_step} {trainer.current_epoch} {float(trainer.callback_metrics['val_loss']):.6f}", flush=True
)
