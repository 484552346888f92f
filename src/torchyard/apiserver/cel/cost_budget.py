"""The cost limit of an evaluation, so that no rule and no object can block the server."""

from __future__ import annotations

from torchyard.apiserver.cel.errors import CostLimitExceeded


class CostBudget:
    """The remaining cost. One unit is about the cost of reading one value or ten characters."""

    __slots__ = ("left",)

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise CostLimitExceeded

    def spend_text(self, length: int) -> None:
        self.spend(length // 10 + 1)
