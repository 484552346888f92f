"""A pod's directory: where everything about it lies, and what its records say."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path
from typing import Any

from torchyard.api.objects import Object
from torchyard.api.times import parse_rfc3339
from torchyard.core.pod.view import Attempt
from torchyard.node.shim import records

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

    def plan(self) -> Object | None:
        return records.read(str(self.path / "pod.json"))

    def write_plan(self, plan: Object) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        records.write(str(self.path / "pod.json"), plan)

    def attempts(self, container: Object) -> tuple[Attempt, ...]:
        name = container["name"]
        directory = self.container(name)
        if not directory.is_dir():
            return ()
        numbers = sorted(int(path.stem) for path in directory.glob("*.record"))
        found = [records.read(records.record_path(str(self.path), name, number)) for number in numbers]
        return tuple(self._attempt(container, one) for one in found if one)

    def _attempt(self, container: Object, read: records.ContainerRecord) -> Attempt:
        message = read.get("message") or ""
        if read["state"] == records.EXITED and not message:
            message = self._last_words(container, read) or (records.NODE_STOPPED if read.get("nodeStopped") else "")
        return Attempt(
            number=read["attempt"],
            id=read["id"],
            state=read["state"],
            created=_seconds(read["createdAt"]) or 0.0,
            started=_seconds(read.get("startedAt")),
            finished=_seconds(read.get("finishedAt")),
            exit_code=read.get("exitCode", 0),
            signal=read.get("signal", 0),
            reason=read.get("reason", ""),
            message=message,
            node_stopped=read.get("nodeStopped", False),
        )

    def _last_words(self, container: Object, read: records.ContainerRecord) -> str:
        """What the container left in its termination log, or else, if it asks for that, the end of its output."""
        name, number = container["name"], read["attempt"]
        path = self.message_file(name, number)
        with contextlib.suppress(OSError), path.open("rb") as file:
            said = file.read(_MESSAGE_LIMIT).decode(errors="replace")
            if said:
                return said
        if container.get("terminationMessagePolicy") != "FallbackToLogsOnError" or not read.get("exitCode"):
            return ""
        with contextlib.suppress(OSError), self.log(name, number).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 65536))
            lines = [line.split(b" ", 3)[3] for line in file.read().splitlines() if line.count(b" ") >= 3]
            text = b"".join(line + b"\n" for line in lines[-_LOG_MESSAGE_LINES:])
            return text[-_LOG_MESSAGE_LIMIT:].decode(errors="replace")
        return ""

    def container_names(self) -> list[str]:
        base = self.path / "containers"
        return sorted(path.name for path in base.iterdir()) if base.is_dir() else []

    def remove(self) -> None:
        """Everything, also directories a container made unreadable."""

        def make_writable(function: Any, path: str, _: BaseException | object) -> None:
            parent = Path(path).parent
            with contextlib.suppress(OSError):
                parent.chmod(parent.stat().st_mode | stat.S_IRWXU)
                Path(path).chmod(stat.S_IRWXU)
                function(path)

        for _ in range(2):
            shutil.rmtree(self.path, onerror=make_writable)
            if not self.path.exists():
                return


def _seconds(text: str | None) -> float | None:
    return parse_rfc3339(text).timestamp() if text else None
