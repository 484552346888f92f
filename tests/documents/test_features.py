"""The table of features names tests that exist."""

from __future__ import annotations

import re

from tests.support.kubernetes import ROOT

ROWS = [
    [cell.strip() for cell in line.strip().strip("|").split(" | ")]
    for line in (ROOT / "docs/reference/features.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith(("| ---", "| feature"))
]


def test_every_feature_that_is_there_names_what_shows_it() -> None:
    assert len(ROWS) == 44
    for feature, answer, *shown_by in ROWS:
        tests = [text for cell in shown_by for text in re.findall(r"`([\w/]+(?:\.py)?)`", cell)]
        assert tests or shown_by == ["the tests use the loopback interface only"] or answer.startswith("no"), feature
        for test in tests:
            assert (ROOT / "tests" / test).exists(), (feature, test)
