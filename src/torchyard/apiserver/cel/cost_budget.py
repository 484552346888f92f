"""What running an expression may cost, so that no rule and no object can hold up the server."""

from __future__ import annotations

from torchyard.apiserver.cel.errors import CostLimitExceeded


class CostBudget:
    """Steps left. A step is about what touching one value or ten characters costs."""

    __slots__ = ("left",)

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise CostLimitExceeded

    def spend_text(self, length: int) -> None:
        self.spend(length // 10 + 1)
