"""What makes each built-in kind different: (group, plural) -> behaviour. A kind not here has nothing special."""

from __future__ import annotations

from torchyard.api.behaviour import Behaviour

BEHAVIOURS: dict[tuple[str, str], Behaviour] = {}
