"""Times and durations in the formats of Kubernetes and kubectl."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from torchyard.api import times


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "<invalid>"),
        (-1.5, "0s"),
        (0, "0s"),
        (95, "95s"),
        (119.9, "119s"),
        (120, "2m"),
        (187, "3m7s"),
        (48 * 60, "48m"),
        (3 * 3600, "3h"),
        (4 * 3600 + 45 * 60, "4h45m"),
        (29 * 3600, "29h"),
        (6 * 86400 + 3600, "6d1h"),
        (7 * 86400, "7d"),
        (48 * 86400, "48d"),
        (2 * 365 * 86400, "2y"),
        (3 * 365 * 86400 + 86400, "3y1d"),
        (9 * 365 * 86400 + 86400, "9y"),
    ],
)
def test_human_duration_matches_kubectl(seconds: float, text: str) -> None:
    assert times.human_duration(timedelta(seconds=seconds)) == text


def test_times_are_written_in_utc() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
    assert times.to_rfc3339(moment) == "2026-01-02T03:04:05Z"
    assert times.to_rfc3339_micro(moment) == "2026-01-02T03:04:05.000678Z"
    assert times.parse_rfc3339("2026-01-02T03:04:05.000678Z") == moment
    assert times.parse_rfc3339("2026-01-02T04:04:05.000678999+01:00") == moment


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-01-02",
        "2026-13-02T03:04:05Z",
        "2026-01-02T03:04:05",
        "2026-01-02 03:04:05Z",
        "0001-01-01T00:00:00+14:00",  # in UTC these two are in no year
        "9999-12-31T23:59:59-01:00",
    ],
)
def test_an_invalid_time_is_an_error_with_an_example(text: str) -> None:
    with pytest.raises(times.TimeError, match="2006-01-02T15:04:05Z"):
        times.parse_rfc3339(text)


@pytest.mark.parametrize(
    ("text", "seconds", "again"),
    [
        ("1h15m30.5s", 4530.5, "1h15m30.5s"),
        ("0", 0, "0s"),
        ("90s", 90, "1m30s"),
        ("1h", 3600, "1h0m0s"),
        ("-1.5h", -5400, "-1h30m0s"),
        ("1.5ms", 0.0015, "1.5ms"),
        ("10us", 0.00001, "10µs"),
        (".5s", 0.5, "500ms"),
        ("2m", 120, "2m0s"),
    ],
)
def test_durations_are_parsed_and_formatted_as_in_go(text: str, seconds: float, again: str) -> None:
    length = times.parse_duration(text)
    assert length.total_seconds() == pytest.approx(seconds)
    assert times.format_duration(length) == again


@pytest.mark.parametrize("text", ["", "1", "1 s", "s", "1x", "9999999h"])
def test_an_invalid_duration_is_an_error(text: str) -> None:
    with pytest.raises(times.TimeError, match="invalid duration"):
        times.parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "moment"),
    [(3, datetime(2026, 1, 1, 0, 0, 3, tzinfo=UTC)), (2**63 - 1, times.LATEST), (-(2**63), times.EARLIEST)],
)
def test_a_shifted_moment_stays_within_the_years_that_a_time_can_have(seconds: int, moment: datetime) -> None:
    assert times.shift(datetime(2026, 1, 1, tzinfo=UTC), seconds) == moment
    assert len(times.to_rfc3339(moment)) == 20
