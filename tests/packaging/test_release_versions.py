"""Every place that states a version states the package's version."""

from __future__ import annotations

import yaml
from tests.support.kubernetes import ROOT

from torchyard import __version__


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((ROOT / "deploy" / "chart" / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_the_changelog_describes_the_version_of_the_package() -> None:
    assert f"\n## {__version__}" in (ROOT / "CHANGELOG.md").read_text()
