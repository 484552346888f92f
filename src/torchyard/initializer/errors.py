"""What keeps a dataset or a model from being brought."""

from __future__ import annotations


class InitializerError(Exception):
    """`field` is the one of the TrainJob to change; `fix` says how."""

    def __init__(self, field: str, reason: str, fix: str) -> None:
        super().__init__(f"{field}: {reason}; {fix}")
        self.field, self.reason, self.fix = field, reason, fix
