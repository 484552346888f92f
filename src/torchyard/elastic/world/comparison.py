"""Compares the states of all workers of a world every few steps, and names the first tensor that differs.

After a step all workers must hold the same state, in both modes: they start from the same state and apply the same mean
gradient. A difference means that something outside of the step has changed the state, and every further step would make
it worse. Each comparison reads a part of every tensor, another part each time, and the last one reads everything.
"""

from __future__ import annotations

import zlib
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch

from torchyard.elastic.errors import ElasticError
from torchyard.elastic.world.state import Snapshot, raw_bytes
from torchyard.elastic.world.state_header import tensor_paths

if TYPE_CHECKING:
    from torchyard.elastic.world.process_group import ProcessGroup

WINDOW = 4096
"""How many elements of a tensor one comparison reads: enough to see a change of the whole tensor at once."""
PLAIN_VALUES = "the plain values of "


def checksums(snapshot: Snapshot, window: int | None) -> dict[str, int]:
    """Return a checksum of every tensor, and of the plain values of every part of the state.

    Args:
        snapshot: the state.
        window: the number of the window to read; None reads everything.
    """
    names = tensor_paths(snapshot.skeleton)
    parts = _on_host([_part(tensor, window) for tensor in snapshot.tensors], together=window is not None)
    sums = {names[index]: zlib.crc32(raw_bytes(part)) for index, part in enumerate(parts)}
    for part, values in snapshot.skeleton.items():
        sums[f"{PLAIN_VALUES}{part}"] = zlib.crc32(repr(values).encode())
    return sums


def _part(tensor: torch.Tensor, window: int | None) -> torch.Tensor:
    """Return the part of a tensor that a comparison reads."""
    size = tensor.numel()
    if window is None or size <= WINDOW or not tensor.is_contiguous():
        return tensor
    start = window % -(-size // WINDOW) * WINDOW
    return tensor.view(-1)[start : start + WINDOW]


def _on_host(parts: list[torch.Tensor], *, together: bool) -> list[torch.Tensor]:
    """Return the parts in host memory. Small parts of one device are copied together."""
    by_device: dict[torch.device, list[int]] = {}
    for index, part in enumerate(parts):
        if together and part.device.type != "cpu" and part.numel() <= WINDOW:
            by_device.setdefault(part.device, []).append(index)
    copies = list(parts)
    for indices in by_device.values():
        for index, copied in zip(indices, copy_together([parts[index] for index in indices]), strict=True):
            copies[index] = copied
    return copies


def copy_together(parts: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the bytes of tensors of one device in host memory, with one copy.

    Each copy waits for the device, and a state has hundreds of tensors.
    """
    rows = [part.detach().reshape(-1).view(torch.uint8) for part in parts]
    return list(torch.split(torch.cat(rows).cpu(), [len(row) for row in rows]))


def combine(sums: dict[str, int]) -> int:
    """Return one checksum for all."""
    return zlib.crc32(repr(sorted(sums.items())).encode())


def first_difference(
    group: ProcessGroup, snapshot: Snapshot, members: tuple[str, ...], *, window: int | None
) -> tuple[str, list[str]] | None:
    """Compare the states of all ranks; every rank must call it.

    Returns:
        the first name at which the states differ and the workers that differ from the others, or None.
    """
    sums = checksums(snapshot, window)
    together = _gather(group, torch.tensor([combine(sums), len(sums)]))
    if len({tuple(row) for row in together}) == 1:
        return None
    width = max(count for _, count in together)
    own = torch.full((width, 2), -1)
    for index, (name, value) in enumerate(sums.items()):
        own[index] = torch.tensor([zlib.crc32(name.encode()), value])
    rows = [list(zip(row[::2], row[1::2], strict=True)) for row in _gather(group, own.view(-1))]
    for index, name in enumerate([*sums, *[""] * (width - len(sums))]):
        values = [row[index] for row in rows]
        if len(set(values)) > 1:
            usual = Counter(values).most_common(1)[0][0]
            differing = [members[rank] for rank, value in enumerate(values) if value != usual]
            return name or "the number of tensors", differing
    return None


def _gather(group: ProcessGroup, own: torch.Tensor) -> list[list[int]]:
    gathered = torch.empty(group.size * own.numel(), dtype=own.dtype)
    group.wait(group.all_gather(gathered, own))
    return [list(map(int, row)) for row in gathered.view(group.size, -1).tolist()]


def models_differ(step: int, name: str, workers: list[str], cause: str) -> ElasticError:
    """Return the error for states that differ."""
    return ElasticError(
        "ModelsDiffer",
        f"the states of the workers differ after step {step}: {name} of {', '.join(workers)} is not that of the others",
        hint=cause,
    )


def likely_cause(name: str, model: Any, trained: set[int]) -> str:
    """Return what most often makes a part of the state differ.

    Args:
        name: the name of the tensor in the state.
        model: the model.
        trained: the ids of the parameters whose gradients are averaged.
    """
    if name.startswith(PLAIN_VALUES):
        return (
            "advance schedulers and counters on every worker for every step: pass a scheduler as scheduler=, do not "
            "advance it under a condition that depends on the worker"
        )
    key = name.removeprefix("model.")
    parameter = dict(model.named_parameters()).get(key)
    if parameter is not None and id(parameter) in trained:
        return (
            "change parameters only through the optimizer, or in the same way on every worker; machines with different "
            "processors may also compute different bits (digest_every=0 switches the comparison off)"
        )
    if parameter is not None:
        return f"{key} is not trained by this job, but changes: set requires_grad before train is called"
    if key in dict(model.named_buffers()):
        return (
            f"the forward pass changes the buffer {key} in some steps only: change it in every forward pass, so that "
            "its mean is part of a step"
        )
    return "change this object in the same way on every worker, for every step"
