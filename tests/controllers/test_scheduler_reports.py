"""Reports about pending pods give way to other work of the event loop."""

from __future__ import annotations

import pytest

from torchyard.controllers.scheduler_writes import report_pause


@pytest.mark.parametrize(
    ("delay", "pause"),
    [
        pytest.param(0.0, 0.0, id="idle"),
        pytest.param(0.001, 0.0, id="nearly idle"),
        pytest.param(0.01, 0.09, id="busy"),
        pytest.param(10.0, 0.5, id="blocked"),
    ],
)
def test_the_pause_grows_with_the_delay_of_the_loop_up_to_a_limit(delay: float, pause: float) -> None:
    assert report_pause(delay) == pytest.approx(pause)
