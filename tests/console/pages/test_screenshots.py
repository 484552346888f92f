"""The pages look as they did: pictures in the light, dark and narrow form, compared with recorded ones.

Fonts and their rendering differ between machines, so the pictures are compared at a quarter of their size, block by
block: a block differs if its mean colour does. Browsers draw differently from version to version, so the comparison is
skipped with another major version of Chromium than the recorded one. `TORCHYARD_RECORD_SCREENSHOTS=1` records.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest
from tests.console.pages import fixed_cluster
from tests.console.pages.conftest import Console

RECORDED = Path(__file__).parent / "screenshots"
VERSION = RECORDED / "chromium.txt"
JOB = "/job/default/pytorchjobs.kubeflow.org/train-0"
COMPARE = "/compare?jobs=default/pytorchjobs.kubeflow.org/train-0,default/pytorchjobs.kubeflow.org/train-1"
PICTURES = {
    "overview-light": ("/overview", ".meter", 1280, False),
    "overview-dark": ("/overview", ".meter", 1280, True),
    "overview-narrow": ("/overview", ".meter", 360, False),
    "queues-light": ("/queues", "td.wide", 1280, False),
    "queues-dark": ("/queues", "td.wide", 1280, True),
    "queues-narrow": ("/queues", "td.wide", 360, False),
    "nodes-light": ("/nodes", ".meter", 1280, False),
    "volumes-light": ("/volumes", ".state", 1280, False),
    "images-dark": ("/images", "td", 1280, True),
    "history-light": ("/history", "td.wide", 1280, False),
    "history-narrow": ("/history", "td.wide", 360, True),
    "compare-light": (COMPARE, "canvas", 1280, False),
    "elastic-light": (f"{JOB}?tab=elastic", "text=1 worker lost", 1280, False),
    "elastic-dark": (f"{JOB}?tab=elastic", "text=1 worker lost", 1280, True),
    "elastic-narrow": (f"{JOB}?tab=elastic", "text=1 worker lost", 360, False),
    "yaml-narrow": (f"{JOB}?tab=yaml", ".yaml", 360, False),
    "jobs-light": ("/jobs", ".job-row", 1280, False),
    "jobs-dark": ("/jobs", ".job-row", 1280, True),
    "jobs-narrow": ("/jobs", ".job-row", 360, False),
    "job-dark": (JOB, "canvas", 1280, True),
    "job-narrow": (JOB, "canvas", 360, False),
    "metrics-light": (f"{JOB}?tab=metrics", "canvas", 1280, False),
    "logs-light": (f"{JOB}?tab=logs", ".line", 1280, False),
}
_TOLERANCE = 24  # of 255, in a channel of a block's mean
_MAX_DIFFERENT = 0.02  # of all blocks
# Draws a picture at a quarter of its size.
_SHRINK = """async data => {
  const image = new Image(); image.src = 'data:image/png;base64,' + data; await image.decode();
  const canvas = document.createElement('canvas'); canvas.width = image.width / 4; canvas.height = image.height / 4;
  const context = canvas.getContext('2d'); context.imageSmoothingQuality = 'high';
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL('image/webp', 0.8).split(',')[1];
}"""
# The share of blocks of 8 pixels whose mean differs.
_COMPARE = """async ([first, second, tolerance]) => {
  const blocks = async data => {
    const image = new Image(); image.src = 'data:image/webp;base64,' + data; await image.decode();
    const canvas = document.createElement('canvas');
    canvas.width = Math.floor(image.width / 8); canvas.height = Math.floor(image.height / 8);
    const context = canvas.getContext('2d'); context.imageSmoothingQuality = 'high';
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    return [canvas.width, canvas.height, context.getImageData(0, 0, canvas.width, canvas.height).data];
  };
  const [a, b] = [await blocks(first), await blocks(second)];
  if (a[0] !== b[0] || a[1] !== b[1]) return 1;
  let different = 0;
  for (let at = 0; at < a[2].length; at += 4) {
    if ([0, 1, 2].some(channel => Math.abs(a[2][at + channel] - b[2][at + channel]) > tolerance)) different += 1;
  }
  return different / (a[2].length / 4);
}"""


@pytest.fixture
def canvas(chromium: Any) -> Any:
    """A page of no origin that draws."""
    page = chromium.new_page()
    yield page
    page.close()


def _major(chromium: Any) -> str:
    return str(chromium.version).partition(".")[0]


def _picture(console: Console, canvas: Any, name: str) -> str:
    route, awaited, width, is_dark = PICTURES[name]
    page = console.window(width=width, dark=is_dark)
    fixed_cluster.serve(page, has_logs=JOB in route, is_elastic="elastic" in name)
    console.go(page, route)
    page.locator(awaited).first.wait_for()
    page.locator("text=Loading…").first.wait_for(state="detached")
    page.evaluate("document.fonts.ready")
    shot = page.screenshot(animations="disabled", caret="hide")
    return str(canvas.evaluate(_SHRINK, base64.b64encode(shot).decode()))


@pytest.mark.parametrize("name", PICTURES)
def test_the_page_looks_as_recorded(console: Console, chromium: Any, canvas: Any, name: str) -> None:
    path = RECORDED / f"{name}.webp"
    if os.environ.get("TORCHYARD_RECORD_SCREENSHOTS"):
        RECORDED.mkdir(exist_ok=True)
        path.write_bytes(base64.b64decode(_picture(console, canvas, name)))
        VERSION.write_text(f"{_major(chromium)}\n")
        return
    recorded = VERSION.read_text().strip()
    if recorded != _major(chromium):
        pytest.skip(f"recorded with Chromium {recorded}, and this is {_major(chromium)}")
    picture = _picture(console, canvas, name)
    different = canvas.evaluate(_COMPARE, [base64.b64encode(path.read_bytes()).decode(), picture, _TOLERANCE])
    assert different <= _MAX_DIFFERENT, f"{100 * different:.1f} % of {name} differ; record it if that is intended"


def test_a_changed_page_is_noticed(chromium: Any, canvas: Any) -> None:
    """The comparison tells the light from the dark form, and two pages from each other."""

    def different(first: str, second: str) -> float:
        pictures = [base64.b64encode((RECORDED / f"{each}.webp").read_bytes()).decode() for each in (first, second)]
        return float(canvas.evaluate(_COMPARE, [*pictures, _TOLERANCE]))

    assert different("jobs-light", "jobs-light") == 0
    assert different("jobs-light", "jobs-dark") > 0.5
    assert different("jobs-light", "logs-light") > _MAX_DIFFERENT
    assert different("jobs-light", "jobs-narrow") == 1
