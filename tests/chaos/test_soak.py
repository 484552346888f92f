"""A plane under random work and kills for an hour: memory and file size stay flat, nothing is left, no log flood."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from bench.soak.__main__ import problems, soak
from bench.soak.picture import svg
from bench.soak.samples import Sample, Sampler, flatness
from tests.node.support import need_network
from tests.support.effort import FULL

pytestmark = pytest.mark.chaos


@pytest.mark.timeout(5400)
@pytest.mark.skipif(not FULL, reason="takes an hour: TORCHYARD_TESTS=full")
def test_an_hour_of_random_work_and_kills_leaves_nothing_behind(tmp_path: Path) -> None:
    need_network()
    sampler = soak(tmp_path, minutes=60)
    assert not problems(sampler)


def _samples(*memory: float) -> list[Sample]:
    return [Sample(minute, used, 5.0, 0.0, 3) for minute, used in enumerate(memory)]


def test_growth_is_the_last_fifth_of_the_time_over_the_middle() -> None:
    ratios = flatness(_samples(9, 9, 9, 9, 10, 10, 1, 1, 20, 20, 20))
    assert ratios == {"memory_mb": 2.0, "file_mb": 1.0, "log_lines_per_s": 1.0, "processes": 1.0}


def test_the_picture_has_a_curve_for_each_figure() -> None:
    picture = ET.fromstring(svg(_samples(1, 2, 3), "a plane"))
    curves = [element for element in picture if element.tag.endswith("polyline")]
    assert len(curves) == 4
    assert all(len(curve.attrib["points"].split()) == 3 for curve in curves)


def test_a_sample_counts_new_log_lines_and_the_files_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_bytes(b"x" * 3_000_000)
    (tmp_path / "store.db-wal").write_bytes(b"x" * 1_000_000)
    log = tmp_path / "log"
    log.write_text("one\ntwo\n")
    sampler = Sampler(tmp_path, log, lambda: 0)
    first = sampler.sample()
    assert first.file_mb == 4.0
    assert first.log_lines_per_s > 0
    assert sampler.sample().log_lines_per_s == 0
