"""Reading logs: tail, since, timestamps, limits, streams, and following across a rotation."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from torchyard.core.pod.logs import LogOptions
from torchyard.node.logs import reader
from torchyard.node.logs.reader import read
from torchyard.node.shim.output import CriLineFormatter, LogFile, timestamp


def write(path: Path, *lines: tuple[str, str]) -> None:
    path.write_text("".join(f"2026-01-01T00:00:0{second}.000000000Z {rest}\n" for second, rest in lines))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "0.log"
    write(
        path,
        ("1", "stdout F one"),
        ("2", "stderr F two"),
        ("3", "stdout P thr"),
        ("3", "stdout F ee"),
        ("4", "stdout F four"),
    )
    return path


async def text(path: Path, options: LogOptions) -> str:
    return b"".join([piece async for piece in read(path, options, ended=lambda: True)]).decode()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (LogOptions(), "one\ntwo\nthree\nfour\n"),
        (LogOptions(tail=2), "three\nfour\n"),
        (LogOptions(tail=0), ""),
        (LogOptions(tail=99), "one\ntwo\nthree\nfour\n"),
        (LogOptions(since="2026-01-01T00:00:03.000000000Z"), "three\nfour\n"),
        (LogOptions(limit=6), "one\ntw"),
        (LogOptions(stream="stderr"), "two\n"),
        (LogOptions(tail=1, timestamps=True), "2026-01-01T00:00:04.000000000Z four\n"),
        (LogOptions(tail=2, follow=True), "three\nfour\n"),
    ],
)
async def test_log_options_select_lines(log: Path, options: LogOptions, expected: str) -> None:
    assert await text(log, options) == expected


@pytest.mark.parametrize("tail", [0, 1, 99])
async def test_lines_written_meanwhile_are_not_among_the_last(
    log: Path, tail: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = reader._tail_start

    def find_and_write(*arguments: Any) -> tuple[int, int]:
        with log.open("a") as file:
            file.write("2026-01-01T00:00:05.000000000Z stdout F five\n")
        found = find(*arguments)
        with log.open("a") as file:
            file.write("2026-01-01T00:00:06.000000000Z stdout F six\n")
        return found

    monkeypatch.setattr(reader, "_tail_start", find_and_write)
    assert (await text(log, LogOptions(tail=tail))).split() == ["one", "two", "three", "four"][-tail:] * (tail > 0)
    assert (await text(log, LogOptions(tail=99, follow=True))).split()[-1] == "six"


async def test_rotated_files_are_part_of_the_log(log: Path) -> None:
    write(log.with_name("0.log.1"), ("0", "stdout F older"))
    write(log.with_name("0.log.2"), ("0", "stdout F oldest"))
    assert (await text(log, LogOptions())).startswith("oldest\nolder\none\n")
    assert await text(log, LogOptions(tail=5)) == "older\none\ntwo\nthree\nfour\n"


async def test_following_loses_nothing_across_rotations(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    out = LogFile(str(path), max_bytes=2000, max_files=5)
    form = CriLineFormatter("stdout")
    done = False

    async def produce() -> None:
        nonlocal done
        for number in range(120):
            out.write(form.feed(f"{number}\n".encode()))
            await asyncio.sleep(0.005)
        done = True

    producing = asyncio.create_task(produce())
    await asyncio.sleep(0.02)
    pieces = [piece async for piece in read(path, LogOptions(follow=True), ended=lambda: done)]
    await producing
    out.close()
    assert b"".join(pieces).split() == [str(number).encode() for number in range(120)]
    assert path.with_name("0.log.1").exists()


async def test_following_a_log_that_is_never_written_ends_with_the_container(tmp_path: Path) -> None:
    assert await text(tmp_path / "none.log", LogOptions(follow=True)) == ""


def test_timestamps_sort_as_text() -> None:
    assert timestamp(1_500_000_000_000_000_001) == "2017-07-14T02:40:00.000000001Z"
