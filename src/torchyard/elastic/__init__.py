"""The elastic training runtime. Standard library and torch only; imports nothing of the rest.

Usage: see `torchyard.elastic.api`. The names below are loaded when they are first used, so that the coordinator and the
command line start without torch.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Checkpoints", "ElasticError", "Job", "JobFailed", "Step", "Streams", "join"]

_HOMES = {
    "Checkpoints": "torchyard.elastic.checkpoint.manager",
    "ElasticError": "torchyard.elastic.errors",
    "JobFailed": "torchyard.elastic.errors",
    "Job": "torchyard.elastic.api",
    "Step": "torchyard.elastic.worker.trainer",
    "Streams": "torchyard.elastic.worker.streams",
    "join": "torchyard.elastic.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
