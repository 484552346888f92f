"""The JSON files of a pod's directory: its sandbox, and the config and the record of each attempt of a container.

They say what happened, whichever process dies afterwards. A file is replaced atomically and not fsynced: only a crash
of the whole machine could lose it, and that leaves no process for it to describe.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torchyard.node.shim.record_types import ContainerConfig, ContainerRecord, PodRecord

SHIM_LOCK = "shim.lock"
STARTING, RUNNING, EXITED = "starting", "running", "exited"
# Termination messages. They stand here and not in `api`, which a shim does not import.
LOST = "The process that supervised the container was killed"
NODE_STOPPED = "The node was stopped"


def write(path: str, content: Mapping[str, object]) -> None:
    temporary = f"{path}.{os.getpid()}"
    try:
        with open(temporary, "w") as out:
            out.write(json.dumps(content))  # json.dump would not use the C encoder
        os.replace(temporary, path)
    except OSError:  # the disk is full, for example
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def read(path: str) -> Any:
    """The object in a JSON file; None if there is no such file."""
    try:
        with open(path, "rb", buffering=0) as file:  # no buffer and no decoder, which would be a shim's own pages
            content = json.loads(file.read())
    except FileNotFoundError:
        return None
    return content if isinstance(content, dict) else None


def shim_pid(pod: str) -> int | None:
    """The process that is, or was last, the pod's shim."""
    try:
        with open(f"{pod}/{SHIM_LOCK}") as file:
            text = file.read()
    except FileNotFoundError:
        return None
    return int(text) if text.isdigit() else None


def pod_path(pod: str) -> str:
    return f"{pod}/pod.json"


def read_pod(pod: str) -> PodRecord | None:
    """What the agent decided for the pod. Records of older versions may lack fields."""
    record: PodRecord | None = read(f"{pod}/pod.json")
    return record


def container_directory(pod: str, container: str) -> str:
    return f"{pod}/containers/{container}"


def config_path(pod: str, container: str, attempt: int) -> str:
    return f"{container_directory(pod, container)}/{attempt}.launch"


def read_config(pod: str, container: str, attempt: int) -> ContainerConfig | None:
    config: ContainerConfig | None = read(config_path(pod, container, attempt))
    return config


def record_path(pod: str, container: str, attempt: int) -> str:
    return f"{container_directory(pod, container)}/{attempt}.record"


def read_record(pod: str, container: str, attempt: int) -> ContainerRecord | None:
    record: ContainerRecord | None = read(record_path(pod, container, attempt))
    return record


def read_all(pod: str) -> dict[str, list[ContainerRecord]]:
    """Every container record of a pod by container, in the order of attempts."""
    by_container: dict[str, list[ContainerRecord]] = {}
    base = f"{pod}/containers"
    for container in sorted(os.listdir(base)) if os.path.isdir(base) else ():
        attempts = sorted(
            int(name[: -len(".record")]) for name in os.listdir(f"{base}/{container}") if name.endswith(".record")
        )
        records = [read_record(pod, container, attempt) for attempt in attempts]
        by_container[container] = [record for record in records if record is not None]
    return by_container


def mark_lost(pod: str, now: str) -> None:
    """Record the end of containers whose shim died before it could."""
    end = {"state": EXITED, "exitCode": 137, "reason": "Error", "signal": 9, "message": LOST, "finishedAt": now}
    for container, records in read_all(pod).items():
        for record in records:
            if record["state"] != EXITED:
                write(record_path(pod, container, record["attempt"]), {**record, **end})
