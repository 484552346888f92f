"""What a shim writes down about each start of a container, so that it is known whoever dies afterwards.

One file per (container, attempt), replaced atomically. Not fsynced: only a crash of the whole machine could lose it,
and then no process is left to be known about.
"""

from __future__ import annotations

import json
import os
from typing import Any

ContainerRecord = dict[str, Any]

STARTING, RUNNING, EXITED = "starting", "running", "exited"
LOST = "The process that supervised the container was killed"
NODE_STOPPED = "The node was stopped"


def container_directory(pod: str, container: str) -> str:
    return f"{pod}/containers/{container}"


def launch_path(pod: str, container: str, attempt: int) -> str:
    return f"{container_directory(pod, container)}/{attempt}.launch"


def record_path(pod: str, container: str, attempt: int) -> str:
    return f"{container_directory(pod, container)}/{attempt}.record"


def write(path: str, content: dict[str, Any]) -> None:
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w") as out:
        out.write(json.dumps(content))  # not json.dump, which does without the C encoder
    os.replace(temporary, path)


def read(path: str) -> dict[str, Any] | None:
    try:
        with open(path) as text:
            content = json.load(text)
    except FileNotFoundError:
        return None
    return content if isinstance(content, dict) else None


def read_all(pod: str) -> dict[str, list[ContainerRecord]]:
    """Every record of a pod by container, in the order of attempts."""
    found: dict[str, list[ContainerRecord]] = {}
    base = f"{pod}/containers"
    for container in sorted(os.listdir(base)) if os.path.isdir(base) else ():
        attempts = sorted(
            int(name[: -len(".record")]) for name in os.listdir(f"{base}/{container}") if name.endswith(".record")
        )
        records = [read(record_path(pod, container, attempt)) for attempt in attempts]
        found[container] = [record for record in records if record is not None]
    return found


def end_lost(pod: str, now: str) -> None:
    """The pod's shim is dead and nobody saw its containers end: write down what is known."""
    known = {"state": EXITED, "exitCode": 137, "reason": "Error", "signal": 9, "message": LOST, "finishedAt": now}
    for container, records in read_all(pod).items():
        for one in records:
            if one["state"] != EXITED:
                write(record_path(pod, container, one["attempt"]), {**one, **known})
