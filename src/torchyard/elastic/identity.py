"""What makes a training the same training: a checkpoint or a state of another one is refused, with both named.

The identity is a flat dict of plain values, for example `optimizer.0.lr: 0.01`. The order of the records is compared
separately, because it alone decides which records a step has. Standard library only.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from typing import Any

from torchyard.elastic.errors import ElasticError

RESUME_VARIABLE = "TORCHYARD_ELASTIC_RESUME"
RUN_VARIABLE = "TORCHYARD_ELASTIC_RUN"
POLICIES = ("auto", "fresh", "anyway")
SHOWN = 4
"""How many differences an error names."""


@dataclass(frozen=True, slots=True)
class ResumePolicy:
    """Whether a training continues from what an earlier run has left.

    Attributes:
        policy: "auto" continues the same training and refuses another one; "fresh" starts again, and sets earlier
            checkpoints aside; "anyway" continues with changed settings.
        run: identifies this run of the job; a fresh run accepts only its own checkpoints.
    """

    policy: str = "auto"
    run: str = ""

    @classmethod
    def from_environment(cls, policy: str | None) -> ResumePolicy:
        """Return the policy of `join`, or that of the environment, which `run` sets."""
        chosen = policy or os.environ.get(RESUME_VARIABLE) or "auto"
        if chosen not in POLICIES:
            raise ElasticError("BadResume", f"resume is {chosen!r}", hint=f"choose one of {', '.join(POLICIES)}")
        return cls(chosen, os.environ.get(RUN_VARIABLE) or secrets.token_hex(8))

    @property
    def fresh(self) -> bool:
        return self.policy == "fresh"

    @property
    def anyway(self) -> bool:
        return self.policy == "anyway"


def differences(saved: dict[str, Any], current: dict[str, Any]) -> list[str]:
    """Return the keys whose values differ."""
    return [key for key in sorted(set(saved) | set(current)) if saved.get(key) != current.get(key)]


def describe(saved: dict[str, Any], current: dict[str, Any]) -> str:
    """Return the differences of two identities for an error message."""
    keys = differences(saved, current)
    texts = [f"{key} was {saved.get(key)!r} and is now {current.get(key)!r}" for key in keys[:SHOWN]]
    more = f"; and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
    return "; ".join(texts) + more


HINT = (
    "restore the settings to continue; start again with --fresh (or join(resume='fresh')); continue with the changed "
    "settings with --resume-anyway (or join(resume='anyway'))"
)
