"""When a schedule is due: the next time after a moment, and the last time before now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple

from torchyard.api.job.schedule import Schedule

_SECOND, _MINUTE, _HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
# A schedule without a match in five years (the 31st of February) never matches.
_HORIZON = timedelta(days=5 * 366)


def next_after(schedule: Schedule, moment: datetime, zone: tzinfo = UTC) -> datetime | None:
    """The first time after `moment`, in UTC. Times in an hour that a clock change skips do not exist."""
    second = moment.astimezone(UTC).replace(microsecond=0) + _SECOND
    if schedule.every is not None:
        return second - _SECOND + schedule.every
    candidate = second.replace(second=0) + (_MINUTE if second.second else timedelta())
    end = candidate + _HORIZON
    while candidate < end:
        local = candidate.astimezone(zone)
        if local.month not in schedule.months:
            year, month = divmod(local.year * 12 + local.month, 12)
            candidate = datetime(year, month + 1, 1, tzinfo=zone).astimezone(UTC)
        elif not _is_day(schedule, local):
            day = local.date() + timedelta(days=1)
            candidate = datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)
        elif local.hour not in schedule.hours:
            candidate += _HOUR - timedelta(minutes=local.minute)
        elif local.minute not in schedule.minutes:
            candidate += _MINUTE
        else:
            return candidate
    return None


def _is_day(schedule: Schedule, local: datetime) -> bool:
    in_month = local.day in schedule.days
    in_week = local.isoweekday() % 7 in schedule.weekdays
    return in_month and in_week if schedule.needs_both_days else in_month or in_week


class Due(NamedTuple):
    moment: datetime  # the latest scheduled time that has passed
    missed: int  # approximate number of scheduled times that have passed, from the interval of the first two


def latest(schedule: Schedule, since: datetime, now: datetime, zone: tzinfo = UTC) -> Due | None:
    """The latest scheduled time between `since` and now; None if there is none."""
    first = next_after(schedule, since, zone)
    if first is None or first > now:
        return None
    second = next_after(schedule, first, zone)
    if second is None or second > now:
        return Due(first, 1)
    missed = (now - first) // (second - first) + 1
    if schedule.every is not None:
        return Due(first + (missed - 1) * schedule.every, missed)
    return Due(_last_before(schedule, first, now, zone), missed)


def _last_before(schedule: Schedule, first: datetime, now: datetime, zone: tzinfo) -> datetime:
    """Search back in growing steps, so that a plane that slept for a year does not step through every minute."""
    back = _HOUR
    last: datetime | None = None
    while last is None:
        start = max(first - _SECOND, now - back)
        candidate = next_after(schedule, start, zone)
        while candidate is not None and candidate <= now:
            last, candidate = candidate, next_after(schedule, candidate, zone)
        back *= 4
    return last
