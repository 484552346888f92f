"""The one exception of the training runtime: what went wrong, and what to do about it."""

from __future__ import annotations


class ElasticError(Exception):
    """A fault with a stable code, a message and a hint that says what to do."""

    def __init__(self, code: str, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message}\n  what to do: {hint}" if hint else message)
        self.code = code
        self.message = message
        self.hint = hint


class Rejected(ElasticError):
    """The coordinator turned this worker away; trying again would not help."""


class JobFailed(ElasticError):
    """The job as a whole has failed; every worker stops."""
