"""A pod's directory: where its files are, and what its records say."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from torchyard import files
from torchyard.api.objects import Object
from torchyard.api.times import parse_rfc3339
from torchyard.core.pod.view import Attempt
from torchyard.node.shim import records

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import ContainerRecord, PodRecord

log = logging.getLogger(__name__)

_MESSAGE_LIMIT = 4096
_LOG_MESSAGE_LIMIT, _LOG_MESSAGE_LINES = 2048, 80


class PodDir:
    """`pods/<uid>` under the node's root."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def etc(self) -> Path:
        return self.path / "etc"

    def container(self, name: str) -> Path:
        return self.path / "containers" / name

    def log(self, name: str, attempt: int) -> Path:
        return self.container(name) / f"{attempt}.log"

    def message_file(self, name: str, attempt: int) -> Path:
        return self.container(name) / f"{attempt}.message"

    def record(self) -> PodRecord | None:
        return records.read_pod(str(self.path))

    def write_record(self, record: PodRecord) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        records.write(records.pod_path(str(self.path)), record)

    def attempt_numbers(self, container: str) -> list[int]:
        """The attempts of a container that were started, in order."""
        return sorted(int(path.stem) for path in self.container(container).glob("*.record"))

    def attempts(self, container: Object) -> tuple[Attempt, ...]:
        name = container["name"]
        if not self.container(name).is_dir():
            return ()
        started = [records.read_record(str(self.path), name, number) for number in self.attempt_numbers(name)]
        return tuple(self._attempt(container, record) for record in started if record)

    def _attempt(self, container: Object, record: ContainerRecord) -> Attempt:
        message = record.get("message") or ""
        if record["state"] == records.EXITED and not message:
            message = self._termination_message(container, record)
            message = message or (records.NODE_STOPPED if record.get("nodeStopped") else "")
        return Attempt(
            number=record["attempt"],
            id=record["id"],
            state=record["state"],
            created=_seconds(record["createdAt"]) or 0.0,
            started=_seconds(record.get("startedAt")),
            finished=_seconds(record.get("finishedAt")),
            exit_code=record.get("exitCode", 0),
            signal=record.get("signal", 0),
            reason=record.get("reason", ""),
            message=message,
            node_stopped=record.get("nodeStopped", False),
        )

    def _termination_message(self, container: Object, record: ContainerRecord) -> str:
        """What the container wrote to its termination log or, by its policy, the end of its output."""
        name, number = container["name"], record["attempt"]
        message = files.read_end(self.message_file(name, number), _MESSAGE_LIMIT).decode(errors="replace")
        if message:
            return message
        if container.get("terminationMessagePolicy") != "FallbackToLogsOnError" or not record.get("exitCode"):
            return ""
        end = files.read_end(self.log(name, number), 65536)
        lines = [line.split(b" ", 3)[2:] for line in end.splitlines() if line.count(b" ") >= 3]
        text = b"".join(line + (b"" if tag == b"P" else b"\n") for tag, line in lines[-_LOG_MESSAGE_LINES:])
        return text[-_LOG_MESSAGE_LIMIT:].decode(errors="replace")

    def container_names(self) -> list[str]:
        base = self.path / "containers"
        return sorted(path.name for path in base.iterdir()) if base.is_dir() else []

    def keep_logs(self, directory: Path) -> None:
        """Move the logs of all containers into a directory, one below it for each container."""
        for name in self.container_names():
            logs = [path for path in self.container(name).glob("*.log*") if path.stat().st_size]
            if logs:
                target = directory / name
                target.mkdir(parents=True, exist_ok=True, mode=0o700)
            for path in logs:
                try:
                    path.rename(target / path.name)
                except OSError as error:
                    log.warning("log not kept: path=%s error=%r", path, str(error))

    def remove(self) -> None:
        """Remove everything, also directories that a container made unreadable. What cannot be removed is logged."""
        try:
            files.remove_tree(self.path)
        except OSError as error:
            log.warning("pod directory not removed: path=%s error=%r", self.path, str(error))


def _seconds(text: str | None) -> float | None:
    return parse_rfc3339(text).timestamp() if text else None
