"""Turns the mean gradient of a step into new parameters: clipping, scaling, optimizers, schedulers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from torchyard.elastic.errors import ElasticError


@dataclass(frozen=True, slots=True)
class OptimizerUpdate:
    """Turns gradients into new parameters.

    Attributes:
        optimizers: torch optimizers, which step in this order.
        parameters: the parameters whose gradients `clip_norm` limits.
        clip_norm: the maximum norm of the gradients; None does not clip.
        scaler: a `torch.amp.GradScaler`; None does not scale the loss.
        schedulers: learning rate schedulers that advance after every step.
    """

    optimizers: tuple[Any, ...]
    parameters: list[torch.nn.Parameter]
    clip_norm: float | None = None
    scaler: Any = None
    schedulers: tuple[Any, ...] = ()

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the loss to call backward on."""
        scaled: torch.Tensor = self.scaler.scale(loss) if self.scaler is not None else loss
        return scaled

    def apply(self, loss: torch.Tensor) -> None:
        """Update the parameters with the gradients that they have; `loss` is the mean loss of the step."""
        if self.scaler is not None:
            for optimizer in self.optimizers:
                self.scaler.unscale_(optimizer)
        if self.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.clip_norm)
        for optimizer in self.optimizers:
            if self.scaler is not None:
                self.scaler.step(optimizer)
            else:
                optimizer.step()
        if self.scaler is not None:
            self.scaler.update()
        self.advance_schedulers(loss)

    def advance_schedulers(self, loss: torch.Tensor) -> None:
        for scheduler in self.schedulers:
            if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
                scheduler.step(float(loss))
            else:
                scheduler.step()


def named(objects: Any, kind: str) -> dict[str, Any]:
    """Return one object, several in a list or several by name as a dict with the names that they have in the state."""
    if objects is None:
        return {}
    if isinstance(objects, Mapping):
        entries = {f"{kind}.{name}": item for name, item in objects.items()}
    elif isinstance(objects, list | tuple):
        entries = {f"{kind}.{index}": item for index, item in enumerate(objects)}
    else:
        return {kind: objects}
    if not entries:
        raise ElasticError("NothingToTrain", f"{kind} is empty", hint=f"pass at least one {kind}")
    return entries
