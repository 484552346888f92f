"""The messages between the spawner and the zygote: one JSON object per packet of their socket pair."""

from __future__ import annotations

from typing import Literal, TypedDict


class ForkRequest(TypedDict):
    """Fork a worker. Two file descriptors travel with it: the worker's stdout and stderr."""

    name: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    path: list[str]


class ZygoteReady(TypedDict):
    """The zygote has imported torch and accepts requests."""

    type: Literal["ready"]
    pid: int


class WorkerForked(TypedDict):
    """A worker runs."""

    type: Literal["forked"]
    name: str
    pid: int


class WorkerExited(TypedDict):
    """A worker ended; a negative code is the number of the signal that ended it."""

    type: Literal["exited"]
    pid: int
    code: int


ZygoteReply = ZygoteReady | WorkerForked | WorkerExited
