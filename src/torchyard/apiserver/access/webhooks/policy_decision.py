"""The outcome of one validation of a ValidatingAdmissionPolicy that does not hold."""

from __future__ import annotations

from typing import NamedTuple


class PolicyDecision(NamedTuple):
    """Why a policy objects. `failed` tells an expression that could not be evaluated from one that is false."""

    message: str
    reason: str
    failed: bool = False
