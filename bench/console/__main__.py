"""The budgets of the console, measured in the Chromium of this machine.

`python -m bench.console` takes a minute; `--seconds 3600` watches the memory for an hour. It needs the built pages
(`make console`) and Playwright (`pip install -r requirements/console.txt`).
"""

from __future__ import annotations

import argparse
import gzip
import math
import re
import shutil
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.console.server import STATIC, ConsoleServer, serve

MEMORY_SAMPLES = 6
MEMORY_INTERVAL = 300.0  # seconds, at most: an hour has twelve samples
FRAMES = """seconds => new Promise(resolve => {
  const times = []; let last = performance.now(); const end = last + seconds * 1000;
  const frame = now => {
    times.push(now - last); last = now;
    now < end ? requestAnimationFrame(frame) : resolve(times);
  };
  requestAnimationFrame(frame);
})"""
SCROLL = """() => { const list = document.querySelector('.vlist'); let at = 0;
  window.scrolling = setInterval(() => { at += 100; list.scrollTop = at % list.scrollHeight; }, 16); }"""


@contextmanager
def serving(**more: int) -> Iterator[ConsoleServer]:
    with ConsoleServer(**{"jobs": 20, "ranks": 8, "lines_per_second": 0, **more}) as server:
        serve(server)
        yield server
        server.ended.set()
        server.shutdown()


def first_screen_bytes() -> int:
    """What the browser loads for the list of jobs, compressed."""
    names = ["index.html"]
    for name in names:
        text = (STATIC / name).read_text()
        found = re.findall(r'(?:src|href)="\./([^"]+)"', text) if name.endswith("html") else []
        found += (
            [f"assets/{each}" for each in re.findall(r'(?:import|from)\s*"\./([^"]+\.js)"', text)]
            if name.endswith("js")
            else []
        )
        names += [each for each in found if each not in names]
    return sum(len(gzip.compress((STATIC / name).read_bytes())) for name in names)


def interactive_milliseconds(browser: Any) -> float:
    """From the request of the page to a list of jobs that answers: the median of five, with an empty cache."""
    times = []
    with serving() as server:
        for _ in range(5):
            context = browser.new_context()
            page = context.new_page()
            page.goto(f"{server.url}#/jobs")
            page.locator(".job-row").first.wait_for()
            times.append(page.evaluate("performance.now()"))
            context.close()
    return statistics.median(times)


def frames(page: Any, seconds: float) -> tuple[float, float, int]:
    """Frames a second, the longest frame in milliseconds, and how many there were."""
    times = page.evaluate(FRAMES, seconds)[1:]
    return 1000 * len(times) / sum(times), max(times), len(times)


def log_frames(browser: Any, seconds: float) -> tuple[float, float, dict[str, float], list[float], int]:
    """While 8 ranks log 1,000 lines a second each: frames, the work of one, the memory (MB) over the time, and lines.

    The lines are those that the page has read in the end. A page that gets too little of the processor reads fewer.
    """
    with serving(lines_per_second=1000) as server:
        page = browser.new_page()
        page.goto(f"{server.url}#/job/default/jobs.batch/job-0?tab=logs")
        page.locator(".line").first.wait_for()
        session = page.context.new_cdp_session(page)
        page.wait_for_timeout(8000)  # until the log has reached its limit
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        before = thread_milliseconds(session)
        rate, longest, count = frames(page, 5)
        after = thread_milliseconds(session)
        memory = []
        samples = max(MEMORY_SAMPLES, math.ceil(seconds / MEMORY_INTERVAL) + 1)
        for step in range(samples):
            if step:
                page.wait_for_timeout(1000 * seconds / (samples - 1))
            session.send("HeapProfiler.collectGarbage")
            memory.append(page.evaluate("performance.memory.usedJSHeapSize") / 1e6)
            print(
                f"memory {memory[-1]:.1f} MB after {page.locator('[role=status].number').inner_text()}", file=sys.stderr
            )
        lines = sum(map(int, re.findall(r"\d+", page.locator("[role=status].number").inner_text())))
        page.close()
    return rate, longest, {name: (after[name] - before[name]) / count for name in before}, memory, lines


def thread_milliseconds(session: Any) -> dict[str, float]:
    """What the page's thread has worked so far, without the time in which other processes had its core."""
    metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    return {name: 1000 * metrics[f"{name}Duration"] for name in ("Script", "Layout", "RecalcStyle", "Task")}


def list_frames(browser: Any) -> tuple[float, float, float, dict[str, float]]:
    """Ten thousand jobs: milliseconds until they are all there, frames while the list scrolls, and the work of one."""
    with serving(jobs=10_000) as server:
        page = browser.new_page()
        page.goto(f"{server.url}#/jobs?sort=name")
        page.locator("text=10000 of 10000").wait_for()
        loaded = page.evaluate("performance.now()")
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        page.evaluate(SCROLL)
        before = thread_milliseconds(session)
        rate, longest, count = frames(page, 4)
        after = thread_milliseconds(session)
        page.close()
    return loaded, rate, longest, {name: (after[name] - before[name]) / count for name in before}


def work_row(work: dict[str, float]) -> tuple[str, str, str, bool]:
    parts = ", ".join(f"{name.lower()} {value:.1f}" for name, value in work.items())
    return "its work for a frame, CPU", f"{parts} ms", "16 ms", work["Task"] < 16


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30, help="how long the memory is watched")
    arguments = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    if not (STATIC / "index.html").is_file() or chromium is None:
        print("bench.console needs the built pages (make console) and Chromium", file=sys.stderr)
        return 2
    from playwright.sync_api import sync_playwright

    rows: list[tuple[str, str, str, bool]] = []
    size = first_screen_bytes()
    rows.append(("first screen, compressed", f"{size / 1000:.1f} KB", "100 KB", size < 100_000))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--enable-precise-memory-info"]
        )
        interactive = interactive_milliseconds(browser)
        rows.append(("interactive", f"{interactive:.0f} ms", "1000 ms", interactive < 1000))
        loaded, rate, longest, work = list_frames(browser)
        rows.append(("10,000 jobs loaded", f"{loaded:.0f} ms", "", True))
        rows.append(("10,000 jobs, scrolling", f"{rate:.0f} fps, longest frame {longest:.0f} ms", "60 fps", rate > 55))
        rows.append(work_row(work))
        rate, longest, work, memory, lines = log_frames(browser, arguments.seconds)
        rows.append(
            ("8 ranks, 1,000 lines/s each", f"{rate:.0f} fps, longest frame {longest:.0f} ms", "60 fps", rate > 55)
        )
        rows.append(work_row(work))
        growth = memory[-1] - memory[0]
        text = " ".join(f"{each:.0f}" for each in memory)
        name = f"memory over {arguments.seconds:.0f} s, {lines / 1e6:.1f} M lines"
        rows.append((name, f"{text} MB", "flat (+10 MB)", growth < 10))
        browser.close()
    for name, measured, budget, is_met in rows:
        print(f"{name:34} {measured:44} {budget:15} {'' if is_met else 'OVER'}")
    return 0 if all(is_met for *_, is_met in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
