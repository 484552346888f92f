"""The settings of one training: what a program passes to `train` or `batches`, as one record."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from torchyard.elastic.checkpoint.manager import Checkpoints
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.reduce.fast import FastReducer
from torchyard.elastic.reduce.strict import StrictReducer
from torchyard.elastic.world.state import Stateful

MODES: dict[str, type[StrictReducer] | type[FastReducer]] = {"strict": StrictReducer, "fast": FastReducer}
BACKENDS = ("gloo", "nccl")
"""What carries gradients. NCCL needs a GPU for each worker; with gloo several workers may share one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings:
    """The settings of one training; `Job.train` describes each of them.

    Attributes:
        loss: None if the program computes gradients in a loop of its own.
    """

    data: Any
    loss: Callable[[Any], torch.Tensor] | None = None
    batch: int | None = None
    micro_batches: int = 1
    epochs: int = 1
    mode: str = "strict"
    backend: str = "gloo"
    shuffle: bool = True
    sampler: Any = None
    clip_norm: float | None = None
    scheduler: Any = None
    scaler: Any = None
    also: Mapping[str, Stateful] | None = None
    collate: Callable[[list[Any]], Any] | None = None
    loaders: int | None = None
    prefetch: int = 2
    digest_every: int = 50
    checkpoints: Checkpoints | None = None
    snapshot_every: int = 0
    unchecked: Collection[str] = ()

    @property
    def strict(self) -> bool:
        return self.mode == "strict"

    def check_mode(self) -> None:
        """Raise if there is no such mode."""
        if self.mode not in MODES:
            raise ElasticError("BadMode", f"mode is {self.mode!r}", hint=f"choose one of {', '.join(MODES)}")

    def check_backend(self, device: torch.device) -> None:
        """Raise if the backend cannot carry the gradients of a model on this device."""
        if self.backend not in BACKENDS:
            hint = f"choose one of {', '.join(BACKENDS)}"
            raise ElasticError("BadBackend", f"backend is {self.backend!r}", hint=hint)
        if self.backend == "nccl" and device.type != "cuda":
            raise ElasticError(
                "BadBackend",
                f"nccl cannot carry gradients on {device.type}",
                hint="move the model to a GPU, or use gloo",
            )
