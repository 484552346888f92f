"""The errors of the training runtime: what is wrong, and what to do about it."""

from __future__ import annotations


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
