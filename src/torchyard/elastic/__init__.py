"""The elastic training runtime. It uses the standard library and torch, and nothing else of torchyard.

Programs import the names below. They are loaded on first use, so that the coordinator and the command line start
without torch.

Reading order:

- `api`: `join` and `train`, what a program calls.
- `sampler`: which records a step consumes.
- `identity`: what makes a training the same training.
- `worker`: the training loop.
- `reduce`: averages gradients over the world.
- `world`: a worker's connection, process group and state.
- `wire`, `wire_fields`: the messages between workers, agents and the coordinator, and the checks of their fields.
- `coordinator`: decides which workers form the world.
- `values`: plain values of a program that belong to the state.
- `ledger`: one durable row for every applied step.
- `checkpoint`: snapshots in shared memory, checkpoints on disk and in object stores.
- `agent`: starts and restarts the workers of one machine.
- `job_record`, `run`, `sidecar`, `cli`: a job on one machine, a coordinator next to a worker, the commands.
- `huggingface`, `lightning`: the loops of `transformers.Trainer` and of Lightning.
- `elasticai`, `compat`: programs written for ElasticDL.
- `bundle`: the runtime as a zip file for pods without torchyard.
- `chaos`: fault injection for tests and benchmarks.
- `errors`: errors with a code and a hint.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "Checkpoints",
    "ElasticError",
    "HuggingFaceShards",
    "Job",
    "JobFailed",
    "ShardedDataset",
    "Step",
    "Streams",
    "TarShards",
    "Values",
    "join",
]

_MODULES = {
    "Checkpoints": "torchyard.elastic.checkpoint.manager",
    "ElasticError": "torchyard.elastic.errors",
    "JobFailed": "torchyard.elastic.errors",
    "HuggingFaceShards": "torchyard.elastic.worker.streaming",
    "Job": "torchyard.elastic.api",
    "ShardedDataset": "torchyard.elastic.worker.shards",
    "Step": "torchyard.elastic.worker.trainer",
    "Streams": "torchyard.elastic.worker.streams",
    "TarShards": "torchyard.elastic.worker.streaming",
    "Values": "torchyard.elastic.values",
    "join": "torchyard.elastic.api",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_MODULES[name]), name)
