"""All scenarios, and the file with what the real Kueue answered."""

from __future__ import annotations

from pathlib import Path

from tests.kueue import invalid_objects, scenarios_conditions, scenarios_preemption, scenarios_resources
from tests.kueue.harness import SCRIPTS

RECORDED = Path(__file__).parent / "recorded.json"
MODULES = (scenarios_resources, scenarios_conditions, scenarios_preemption, invalid_objects)

__all__ = ["MODULES", "RECORDED", "SCRIPTS"]
