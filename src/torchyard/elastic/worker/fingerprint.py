"""Describes a training for its identity: the model, its optimizers, schedulers and settings, as plain values."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from typing import Any

import torch

from torchyard.elastic.errors import ElasticError
from torchyard.elastic.world.state import raw_bytes

SAMPLE = 1024
"""How many elements of a parameter its fingerprint contains: another seed changes all of them."""
DIGITS = 16
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""Functions in the text of a module have an address that differs in every process."""
PROGRESS = frozenset({"last_epoch", "_step_count", "_last_lr", "_get_lr_called_within_step", "num_bad_epochs", "best"})
"""What a scheduler counts; the rest are its settings."""


def describe_training(
    model: torch.nn.Module,
    optimizers: Mapping[str, Any],
    schedulers: Mapping[str, Any],
    *,
    strict: bool,
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the identity of a training before its first step.

    Args:
        model: the model with its initial parameters.
        optimizers: by name.
        schedulers: by name.
        strict: whether the initial parameters must have the same bits.
        settings: further values, which the program or `train` determines.
    """
    values: dict[str, Any] = {"model": _short(_ADDRESS.sub("", repr(model)).encode())}
    if strict:
        values["initial parameters"] = _sample(model)
    for name, optimizer in optimizers.items():
        values[name] = type(optimizer).__name__
        for index, group in enumerate(optimizer.param_groups):
            values |= _flat(f"{name}.{index}", {key: item for key, item in group.items() if key != "params"})
    for name, scheduler in schedulers.items():
        values[name] = type(scheduler).__name__
        state = {key: item for key, item in scheduler.state_dict().items() if key not in PROGRESS}
        values |= _flat(name, state)
    for key, item in settings.items():
        if not _is_plain(item):
            raise ElasticError(
                "BadSettings",
                f"settings[{key!r}] is a {type(item).__name__}",
                hint="use only numbers, strings, booleans and None, for example vars(args)",
            )
        values[str(key)] = _json_value(item)
    return values


def _flat(prefix: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain values of a state_dict, by their path."""
    values: dict[str, Any] = {}
    for key, item in state.items():
        path = f"{prefix}.{key}"
        if isinstance(item, torch.Tensor) and item.numel() == 1:
            values[path] = _json_value(item.item())
        elif isinstance(item, Mapping):
            values |= _flat(path, item)
        elif isinstance(item, list | tuple) and all(_is_plain(entry) for entry in item):
            values[path] = [_json_value(entry) for entry in item]
        elif _is_plain(item):
            values[path] = _json_value(item)
    return values


def _json_value(value: Any) -> Any:
    """Return a value that is equal to itself after it was sent: NaN is not."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _sample(model: torch.nn.Module) -> str:
    """Return a hash of the beginning and of the end of every parameter and buffer."""
    hasher = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        if not isinstance(tensor, torch.Tensor):
            continue
        flat = tensor.detach().reshape(-1)
        hasher.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        hasher.update(raw_bytes(flat[:SAMPLE]))
        hasher.update(raw_bytes(flat[-SAMPLE:]))
    return hasher.hexdigest()[:DIGITS]


def _short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:DIGITS]


def apply_changes(
    saved: Mapping[str, Any], current: Mapping[str, Any], parts: Mapping[str, Any], keys: list[str]
) -> list[str]:
    """Give restored optimizers and schedulers the settings of the present program.

    A restored optimizer has the settings that it was saved with. A learning rate keeps what schedulers have done to it:
    it is scaled by the ratio of the two initial rates.

    Returns:
        the keys that were applied.
    """
    applied = []
    for key in keys:
        name, _, rest = key.partition(".")
        numbered = f"{name}.{rest.partition('.')[0]}"
        part, path = (parts[numbered], rest.partition(".")[2]) if numbered in parts else (parts.get(name), rest)
        if part is None or not path or key not in current:
            continue
        old, new = saved.get(key), current[key]
        if hasattr(part, "param_groups"):
            index, _, field = path.partition(".")
            group = part.param_groups[int(index)]
            group[field] = group[field] * (new / old) if field == "lr" and old else new
        else:
            part.load_state_dict(part.state_dict() | {path: new})
        applied.append(key)
    return applied
