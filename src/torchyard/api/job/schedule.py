"""Parser of CronJob schedules: five fields, or a macro such as `@hourly`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from torchyard.api import times
from torchyard.api.errors import YardError

_MONTHS = {
    name: index
    for index, name in enumerate(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1
    )
}
_DAYS = {name: index for index, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
# minute, hour, day of month, month, day of week
_BOUNDS: tuple[tuple[int, int, dict[str, int]], ...] = (
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, _MONTHS),
    (0, 6, _DAYS),
)
_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


_MAX_DIGITS = 18  # of an int64


class ScheduleError(YardError):
    """The text is not a valid schedule. The message is that of the library that upstream uses."""

    code = "BadSchedule"


@dataclass(frozen=True, slots=True)
class Schedule:
    minutes: frozenset[int] = frozenset()
    hours: frozenset[int] = frozenset()
    days: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()  # Sunday is 0
    # With a star in the day of month or the day of week, both fields must match; otherwise one match is enough.
    needs_both_days: bool = True
    every: timedelta | None = None  # set for `@every 90s`; the other fields are unused then


def parse_schedule(schedule: str) -> Schedule:
    text = schedule.strip()
    if text.startswith(("TZ=", "CRON_TZ=")):
        text = text.partition(" ")[2].strip()
    if text.startswith("@every "):
        return Schedule(every=_every(text))
    if text.startswith("@"):
        if text not in _MACROS:
            raise ScheduleError(f"unrecognized descriptor: {text}")
        text = _MACROS[text]
    fields = text.split()
    if len(fields) != 5:
        raise ScheduleError(f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]")
    read = [_field(field, *bounds) for field, bounds in zip(fields, _BOUNDS, strict=True)]
    minutes, hours, days, months, weekdays = (numbers for numbers, _ in read)
    return Schedule(minutes, hours, days, months, weekdays, needs_both_days=read[2][1] or read[4][1])


def schedule_problem(schedule: str) -> str:
    """Return what is wrong with a schedule, or ""."""
    try:
        parse_schedule(schedule)
    except ScheduleError as error:
        return error.message
    return ""


def _every(text: str) -> timedelta:
    try:
        length = times.parse_duration(text.removeprefix("@every "))
    except times.TimeError as error:
        raise ScheduleError(f"failed to parse duration {text}: {error.message}") from error
    return max(timedelta(seconds=1), timedelta(seconds=int(length.total_seconds())))


def _field(text: str, low: int, high: int, names: dict[str, int]) -> tuple[frozenset[int], bool]:
    """Return the numbers of a field, and whether one of its parts is a star."""
    numbers: set[int] = set()
    has_star = False
    for part in text.split(","):
        if part:
            span = _range(part, low, high, names)
            numbers.update(span)
            has_star |= part[0] in "*?" and span.step == 1
    return frozenset(numbers), has_star


def _range(text: str, low: int, high: int, names: dict[str, int]) -> range:
    span, *steps = text.split("/")
    limits = span.split("-")
    if limits[0] in ("*", "?"):
        start, end = low, high
    else:
        start = _number(limits[0], names)
        if len(limits) > 2:
            raise ScheduleError(f"too many hyphens: {text}")
        end = _number(limits[1], names) if len(limits) == 2 else start
    if len(steps) > 1:
        raise ScheduleError(f"too many slashes: {text}")
    step = _plain_number(steps[0]) if steps else 1
    if steps and len(limits) == 1:
        end = high
    if start < low:
        raise ScheduleError(f"beginning of range ({start}) below minimum ({low}): {text}")
    if end > high:
        raise ScheduleError(f"end of range ({end}) above maximum ({high}): {text}")
    if start > end:
        raise ScheduleError(f"beginning of range ({start}) beyond end of range ({end}): {text}")
    if step == 0:
        raise ScheduleError(f"step of range should be a positive number: {text}")
    return range(start, end + 1, step)


def _number(text: str, names: dict[str, int]) -> int:
    named = names.get(text.lower())
    return _plain_number(text) if named is None else named


def _plain_number(text: str) -> int:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isascii() or not digits.isdigit():
        raise ScheduleError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax')
    if len(digits.lstrip("0")) > _MAX_DIGITS:  # int() rejects thousands of digits
        raise ScheduleError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": value out of range')
    if int(text) < 0:
        raise ScheduleError(f"negative number ({int(text)}) not allowed: {text}")
    return int(text)
