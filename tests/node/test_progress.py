"""Progress from the logs of a node's pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tests.support.waiting import first_answer

from torchyard.api.objects import Object
from torchyard.core.pod.logs import LogOptions
from torchyard.core.progress.lines import LineParser, LineReport
from torchyard.core.progress.reports import ProgressReport
from torchyard.node.agent import NodeAgent
from torchyard.node.logs import progress
from torchyard.node.logs.progress import ProgressScanner
from torchyard.node.logs.reader import _CriParser
from torchyard.node.shim.output import CriLineFormatter


async def until(condition: Callable[[], bool], description: str) -> None:
    async def query() -> bool:
        return condition()

    await first_answer(query, description)


def line(text: str, second: int = 0) -> str:
    return f"2026-01-01T00:00:{second:02}.000000000Z stdout F {text}\n"


class Node:
    """A scanner of a pod's directory with one container; `reports` are those with a percentage."""

    def __init__(self, root: Path) -> None:
        self.reports: list[ProgressReport] = []
        self.scanner = ProgressScanner(root, self.reports.append)
        self.logs = root / "u" / "containers" / "main"
        self.logs.mkdir(parents=True)

    def observe(self, phase: str, attempt: int = 0) -> None:
        (self.logs / f"{attempt}.record").touch()
        owner = {"kind": "Job", "name": "train", "uid": "j", "controller": True}
        metadata = {"name": "train-0", "namespace": "ns", "uid": "u", "ownerReferences": [owner]}
        containers = [{"name": "main", "command": ["train", "--epochs", "2"]}]
        statuses = [{"name": "main", "containerID": f"id://{attempt}"}]
        pod: Object = {"metadata": metadata, "spec": {"containers": containers}}
        pod["status"] = {"phase": phase, "containerStatuses": statuses}
        self.scanner.observe("MODIFIED", pod)

    def write(self, text: str, attempt: int = 0) -> None:
        with (self.logs / f"{attempt}.log").open("a") as file:
            file.write(text)

    def percents(self) -> list[int | None]:
        return [report.percent for report in self.reports if not report.is_last]


async def test_lines_that_are_added_are_reported_once_and_the_end_too(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.observe("Running")
    node.write(line("Train Epoch: 1 [0/100 (0%)] loss=1.0") + line("Train Epoch: 1 [50/100 (50%)] loss=0.5", 1))
    task = asyncio.create_task(node.scanner.run())
    await until(lambda: node.percents() == [0, 25], "the lines")
    node.write(line("Train Epoch: 2 [0/100 (0%)] loss=0.4", 2)[:-1])
    node.write("\n" + line("val accuracy: 12.5%", 3))
    node.observe("Succeeded")
    await until(lambda: bool(node.reports) and node.reports[-1].is_last, "the end")
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert node.percents() == [0, 25, 50, None]
    first = node.reports[1]
    assert (first.job.name, first.replica, dict(first.metrics)["loss"]) == ("train", "train-0", "0.5")


async def test_a_bar_is_reported_while_it_is_drawn(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.observe("Running")
    drawn = line("\r 40%|####  | 4/10 [00:03<00:04]\r 50%|##### | 5/10 [00:03<00:04]").replace(" F ", " P ")
    node.write(drawn)
    task = asyncio.create_task(node.scanner.run())
    await until(lambda: node.percents() == [50], "the bar")
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert node.reports[0].remaining == 4


async def test_a_restarted_container_is_read_from_its_new_log_and_much_output_only_at_its_end(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.observe("Running")
    node.write(line("step 1/10"))
    node.observe("Running", attempt=1)
    node.write("".join(line(f"step {step}/5000") for step in range(1, 5001)), attempt=1)
    task = asyncio.create_task(node.scanner.run())
    await until(lambda: node.percents()[-1:] == [100], "the last line")
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert len(node.reports) <= 101
    node.scanner.observe("DELETED", {"metadata": {"uid": "u"}})
    node.scanner.observe("MODIFIED", {"metadata": {"uid": "x", "name": "x", "namespace": "ns"}})


def test_a_bar_is_in_the_log_while_it_is_drawn_and_reads_as_one_line() -> None:
    now = [10.0]
    formatter = CriLineFormatter("stderr", lambda: now[0])
    entries = [formatter.feed(b"\r 10%|#   | 1/10")]
    now[0] = 10.5
    entries.append(formatter.feed(b"\r 20%|##  | 2/10"))
    now[0] = 11.5
    entries.append(formatter.feed(b"\r 30%|### | 3/10"))
    assert [entry.count(b" P ") for entry in entries] == [1, 0, 1]
    entries.append(formatter.feed(b"\r100%|####| 10/10\nnext"))
    entries.append(formatter.finish())
    parser = _CriParser(LogOptions())
    text = b"".join(parser.feed(entry) for entry in entries)
    assert text == b"\r 10%|#   | 1/10\r 20%|##  | 2/10\r 30%|### | 3/10\r100%|####| 10/10\nnext"


async def test_an_error_while_a_log_is_read_is_logged_and_the_scan_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path)
    node.observe("Running")
    node.write(line("step 1/10"))
    parse = LineParser.parse

    def failing_parse(parser: LineParser, text: str, at: float) -> LineReport | None:
        if "2/10" in text:
            raise OverflowError("int too large to convert to float")
        return parse(parser, text, at)

    monkeypatch.setattr(LineParser, "parse", failing_parse)
    task = asyncio.create_task(node.scanner.run())
    await until(lambda: node.percents() == [10], "the first line")
    node.write(line("step 2/10"))
    await until(lambda: "log not read for progress: pod=train-0 container=main" in caplog.text, "the error")
    node.write(line("step 3/10"))
    await until(lambda: node.percents() == [10, 30], "the line after the one that failed")
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_observing_reads_no_file_and_the_end_of_a_deleted_pod_is_read_by_the_loop(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.observe("Running")
    node.write(line("step 1/10"))
    task = asyncio.create_task(node.scanner.run())
    await until(lambda: node.percents() == [10], "the first line")
    node.write(line("step 2/10"))
    node.observe("Running", attempt=1)
    node.scanner.observe("DELETED", {"metadata": {"uid": "u"}})
    assert node.percents() == [10]
    await until(lambda: node.percents() == [10, 20], "the end of the log")
    await until(lambda: not node.scanner._pods, "the end of the pod")
    assert [report.is_last for report in node.reports] == [False, False, True]
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_the_log_of_a_pod_that_ends_is_read_before_its_directory_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_SCAN_SECONDS", 3600.0)
    node = Node(tmp_path)
    node.observe("Running")
    task = asyncio.create_task(node.scanner.run())
    await asyncio.sleep(0)
    node.write(line("step 95/100") + line("step 100/100", 1))
    node.observe("Succeeded")
    await until(lambda: bool(node.reports) and node.reports[-1].is_last, "the end")
    assert node.percents() == [95, 100]
    node.scanner.observe("DELETED", {"metadata": {"uid": "u"}})
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert not node.scanner._pods and not node.scanner._done


def test_a_deleted_pod_is_stopped_even_if_its_progress_fails() -> None:
    def fail(_change: str, _pod: Object) -> None:
        raise OverflowError

    stopped: list[str] = []
    worker = SimpleNamespace(deleted=lambda: stopped.append("u"))
    agent = SimpleNamespace(_workers={"u": (worker, None)}, _progress=SimpleNamespace(observe=fail))
    agent._update_worker = partial(NodeAgent._update_worker, cast(NodeAgent, agent))
    with pytest.raises(OverflowError):
        NodeAgent._pod_changed(cast(NodeAgent, agent), "DELETED", {"metadata": {"uid": "u"}}, None)
    assert stopped == ["u"]
