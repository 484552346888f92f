"""The errors of the training runtime: what is wrong, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence


class ElasticError(Exception):
    """An error for the user.

    Attributes:
        code: a stable identifier of the kind of error.
        message: what is wrong, and why.
        hint: what to do about it; may be empty.
    """

    def __init__(self, code: str, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message}\n  what to do: {hint}" if hint else message)
        self.code = code
        self.message = message
        self.hint = hint


class Rejected(ElasticError):
    """The coordinator refused this worker; a retry does not help."""


class JobFailed(ElasticError):
    """The job as a whole has failed; every worker stops."""


def cannot_start(command: Sequence[str], error: OSError) -> ElasticError:
    """Describe why the command of a worker cannot be started."""
    hint = f"is there an installed program {command[0]}?"
    if command[0].endswith(".py"):
        hint = f"put the Python that has torch before it: python {command[0]}"
    return ElasticError("CannotStart", f"the program {command[0]} cannot be started: {error.strerror}", hint=hint)
