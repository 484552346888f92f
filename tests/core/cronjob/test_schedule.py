"""When schedules are due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchyard.api.job.schedule import Schedule, parse_schedule
from torchyard.core.cronjob.schedule import Due, latest, next_after

BERLIN, DELHI = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Kolkata")
NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)  # a Thursday


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("* * * * *", "2026-01-01 12:01"),
        ("0 * * * *", "2026-01-01 13:00"),
        ("*/15 9-17 * * MON-FRI", "2026-01-01 12:15"),
        ("30 11 * * *", "2026-01-02 11:30"),
        ("5/20 * * * *", "2026-01-01 12:05"),
        ("0 0 1 */2 *", "2026-03-01 00:00"),
        ("0 0 29 feb ?", "2028-02-29 00:00"),
        ("0 0 13 * fri", "2026-01-02 00:00"),  # the 13th or a Friday
        ("0 0 * * 0", "2026-01-04 00:00"),
        ("0 0 */31 * fri", "2026-01-02 00:00"),  # a step is not a star
        ("@hourly", "2026-01-01 13:00"),
        ("@daily", "2026-01-02 00:00"),
        ("@midnight", "2026-01-02 00:00"),
        ("@weekly", "2026-01-04 00:00"),
        ("@monthly", "2026-02-01 00:00"),
        ("@yearly", "2027-01-01 00:00"),
        ("@every 1h30m", "2026-01-01 13:30"),
        ("59 23 31 2 *", None),
    ],
)
def test_the_next_time_after_noon_on_new_years_day(schedule: str, expected: str | None) -> None:
    assert next_after(parse_schedule(schedule), NOON) == (_at(expected) if expected else None)


@pytest.mark.parametrize(
    ("schedule", "zone", "since", "expected"),
    [
        ("0 9 * * *", BERLIN, "2026-01-01 12:00", "2026-01-02 08:00"),
        ("0 9 * * *", BERLIN, "2026-07-01 12:00", "2026-07-02 07:00"),
        ("15 9 * * *", DELHI, "2026-01-01 12:00", "2026-01-02 03:45"),
        ("30 2 * * *", BERLIN, "2026-03-28 12:00", "2026-03-30 00:30"),  # 02:30 does not exist that night
        ("30 2 * * *", BERLIN, "2026-10-24 12:00", "2026-10-25 00:30"),  # 02:30 exists twice that night
        ("30 2 * * *", BERLIN, "2026-10-25 00:30", "2026-10-25 01:30"),
    ],
)
def test_a_time_zone_moves_it_and_clock_changes_are_seen(
    schedule: str, zone: ZoneInfo, since: str, expected: str
) -> None:
    assert next_after(parse_schedule(schedule), _at(since), zone) == _at(expected)


def test_a_moment_before_the_minute_is_still_before_it() -> None:
    almost = NOON - timedelta(milliseconds=1)
    assert next_after(parse_schedule("0 12 * * *"), almost) == NOON
    assert next_after(parse_schedule("0 12 * * *"), NOON) == NOON + timedelta(days=1)


def _field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    span = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    stepped = st.tuples(st.one_of(st.just("*"), span), st.integers(1, high)).map(lambda pair: f"{pair[0]}/{pair[1]}")
    part = st.one_of(number.map(str), span, stepped)
    return st.one_of(st.just("*"), st.lists(part, min_size=1, max_size=3).map(",".join))


SCHEDULES = st.tuples(_field(0, 59), _field(0, 23), _field(1, 31), _field(1, 12), _field(0, 6)).map(" ".join)
MOMENTS = st.integers(0, 2 * 365 * 86400).map(lambda seconds: NOON + timedelta(seconds=seconds))


def _fits(schedule: Schedule, moment: datetime) -> bool:
    days = moment.day in schedule.days, moment.isoweekday() % 7 in schedule.weekdays
    return (
        moment.minute in schedule.minutes
        and moment.hour in schedule.hours
        and moment.month in schedule.months
        and (all(days) if schedule.needs_both_days else any(days))
    )


@given(SCHEDULES, MOMENTS)
def test_the_next_time_fits_and_none_before_it_does(text: str, moment: datetime) -> None:
    schedule = parse_schedule(text)
    next_time = next_after(schedule, moment)
    if next_time is None:
        return
    assert next_time > moment
    assert _fits(schedule, next_time)
    minute = moment.replace(second=0, microsecond=0) + timedelta(minutes=1)
    for _ in range(1500):
        if minute >= next_time:
            break
        assert not _fits(schedule, minute)
        minute += timedelta(minutes=1)


@given(SCHEDULES, MOMENTS, st.integers(0, 400 * 24 * 60))
def test_the_last_time_has_come_and_the_one_after_it_has_not(text: str, since: datetime, minutes: int) -> None:
    schedule, now = parse_schedule(text), since + timedelta(minutes=minutes)
    due = latest(schedule, since, now)
    if due is None:
        first = next_after(schedule, since)
        assert first is None or first > now
        return
    assert since < due.moment <= now
    following = next_after(schedule, due.moment)
    assert following is None or following > now


@pytest.mark.parametrize(
    ("schedule", "hours", "expected"),
    [
        ("0 * * * *", 0.5, None),
        ("0 * * * *", 1.5, Due(NOON + timedelta(hours=1), 1)),
        ("0 * * * *", 30.5, Due(NOON + timedelta(hours=30), 30)),
        ("* * * * *", 24 * 365, Due(NOON + timedelta(days=365), 365 * 24 * 60)),
        ("@every 50m", 10, Due(NOON + timedelta(minutes=600), 12)),
    ],
)
def test_missed_schedules_are_counted(schedule: str, hours: float, expected: Due | None) -> None:
    assert latest(parse_schedule(schedule), NOON, NOON + timedelta(hours=hours)) == expected
