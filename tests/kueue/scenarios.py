"""All scenarios, and the file with what the real Kueue answered."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.kueue import (
    invalid_objects,
    scenarios_admission_fair_sharing,
    scenarios_block_admission,
    scenarios_conditions,
    scenarios_fair_sharing,
    scenarios_odd_input,
    scenarios_pods_ready,
    scenarios_preemption,
    scenarios_resources,
    scenarios_slices,
)
from tests.kueue.harness import SCRIPTS

RECORDED = Path(__file__).parent / "recorded.json"
MODULES = (scenarios_resources, scenarios_conditions, scenarios_preemption, scenarios_odd_input, invalid_objects)
CONFIGURED_MODULES = (
    scenarios_fair_sharing,
    scenarios_pods_ready,
    scenarios_block_admission,
    scenarios_admission_fair_sharing,
    scenarios_slices,
)


def scripts_of(module: ModuleType) -> list[str]:
    return [name for name, registered in SCRIPTS.items() if registered.script.__module__ == module.__name__]


def configuration_of(module: ModuleType) -> Mapping[str, Any] | None:
    """The fields of Kueue's Configuration that the scenarios of a module need; None if they need the defaults."""
    configuration: Mapping[str, Any] | None = getattr(module, "CONFIGURATION", None)
    return configuration


def gates_of(module: ModuleType) -> str:
    """The feature gates of Kueue that the scenarios of a module need."""
    gates: str = getattr(module, "GATES", "")
    return gates
