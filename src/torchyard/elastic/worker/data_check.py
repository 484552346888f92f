"""Loads the first micro-batch twice: records must not depend on what was loaded before, or on the worker."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import torch

from torchyard.elastic.errors import ElasticError
from torchyard.elastic.worker.loader import MicroBatchLoader
from torchyard.elastic.worker.program_state import ProgramState, Values
from torchyard.elastic.worker.seeding import generators_digest
from torchyard.elastic.world.state import raw_bytes

TOLERANCE = 1e-3
"""Fast mode allows kernels that are not deterministic: their results differ in the last bits."""


class DataCheck:
    """Loads the first micro-batch twice, and compares the results.

    Args:
        loader: loads it.
        strict: whether the same bits are required.
        variables: the variables that the dataset uses; None if they are compared elsewhere.

    Attributes:
        digest: a checksum of the numbers in the first micro-batch: all workers must begin with the same records.
    """

    def __init__(self, loader: MicroBatchLoader, *, strict: bool, variables: ProgramState | None = None) -> None:
        self._loader = loader
        self._strict = strict
        self._variables = variables
        self.digest = ""

    def run(self) -> Any:
        """Return the first micro-batch; raise `ProgramRaised` if the program cannot load it."""
        batch = self.load()
        drawn = generators_digest()
        self.digest = f"{numbers_checksum(batch):08x}" if self._strict else ""
        before = self._variables.read(values=True) if self._variables is not None else {}
        check_same("the dataset", batch, self.load(), strict=self._strict)
        if generators_digest() != drawn:
            raise ElasticError(
                "NotReproducible",
                "the dataset drew other random numbers when it loaded the same records again: it keeps what it drew "
                "the first time, for example records in a cache after augmentation, which a new worker does not have",
                hint="keep records as they are before augmentation",
            )
        if self._variables is not None:
            check_variables(self._variables, before)
        return batch

    def load(self) -> Any:
        """Load the first micro-batch."""
        try:
            return self._loader.load_here(1, 0)
        except Exception as error:
            raise ProgramRaised from error


class ProgramRaised(Exception):
    """The program raised during the dry run."""


def check_variables(program: ProgramState, before: Values) -> None:
    """Refuse a variable of the program that the same computation changes every time, such as a counter."""
    name = program.first_change(before, program.read(values=True))
    if name is not None:
        raise ElasticError(
            "StateOutside",
            f"loading and computing the same records again changes {name}, which is not part of the state: a worker "
            "that joins later, or a resumed job, would have another value",
            hint="count in a buffer of the model, or do it in the loop's body, once for every step; if it does not "
            f"influence the result, for example a list for a log, pass unchecked=[{name!r}]",
        )


def check_same(name: str, first: Any, again: Any, *, strict: bool) -> None:
    """Raise if a part of the program gave two results."""
    if not _equal(first, again, tolerance=0.0 if strict else TOLERANCE):
        values = (
            f" ({float(first)}, then {float(again)})" if isinstance(first, torch.Tensor) and not first.dim() else ""
        )
        raise ElasticError(
            "NotReproducible",
            f"{name} gave two results for the same records, seeds and parameters{values}: it depends on something "
            "that is not part of the state, for example a counter of calls or a random generator of its own",
            hint="use torch's, NumPy's or Python's global generators, which are seeded for every micro-batch; "
            "compute what depends on progress from the state, for example from a buffer of the model",
        )


def numbers_checksum(value: Any, checksum: int = 0) -> int:
    """Return a checksum of the tensors and numbers in a batch. Texts are left out: paths differ between machines."""
    if isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_quantized:
        return zlib.crc32(raw_bytes(value.detach()), zlib.crc32(str(tuple(value.shape)).encode(), checksum))
    if isinstance(value, Mapping):
        for key in value:
            checksum = numbers_checksum(value[key], checksum)
    elif isinstance(value, list | tuple):
        for item in value:
            checksum = numbers_checksum(item, checksum)
    elif isinstance(value, int | float):
        checksum = zlib.crc32(repr(value).encode(), checksum)
    return checksum


def _equal(first: Any, again: Any, *, tolerance: float) -> bool:
    """Return whether two batches or losses are equal; objects that cannot be compared count as equal."""
    if isinstance(first, torch.Tensor):
        if not isinstance(again, torch.Tensor) or first.shape != again.shape or first.dtype != again.dtype:
            return False
        if tolerance and first.is_floating_point():
            return torch.allclose(first, again, rtol=tolerance, equal_nan=True)
        return bool(((first == again) | ((first != first) & (again != again))).all())  # noqa: PLR0124  # NaN
    if isinstance(first, Mapping):
        return set(first) == set(again) and all(_equal(first[key], again[key], tolerance=tolerance) for key in first)
    if isinstance(first, list | tuple):
        return len(first) == len(again) and all(
            _equal(left, right, tolerance=tolerance) for left, right in zip(first, again, strict=True)
        )
    if isinstance(first, int | float | str | bytes | bool):
        return bool(first == again or (first != first and again != again))  # noqa: PLR0124  # NaN
    return True
