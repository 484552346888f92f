"""Timestamps and durations: parsing, formatting, and their accessors."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from torchyard.apiserver.cel.errors import EvaluationError, conversion_error
from torchyard.apiserver.cel.functions import FunctionDecl, function, member_overload, overload
from torchyard.apiserver.cel.types import DURATION, INT, STRING, TIMESTAMP
from torchyard.apiserver.cel.values import NANO, Duration, Timestamp, checked_duration, checked_timestamp

_UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": NANO,
    "m": 60 * NANO,
    "h": 3600 * NANO,
}
_TERM = re.compile(r"(\d+)(?:\.(\d*))?(ns|us|µs|μs|ms|s|m|h)|\.(\d+)(ns|us|µs|μs|ms|s|m|h)")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)")
_OFFSET = re.compile(r"([+-]?)(\d\d):(\d\d)")
_DAY = timedelta(days=1)
_MAX_DIGITS = 20  # more than a duration can have, before the point or behind it


def parse_duration(value: Any) -> Duration:
    """Parse a Go duration such as `1h30m`, without rounding."""
    if isinstance(value, Duration):
        return value
    text = value.lstrip("+-") if value[:2] not in ("++", "--", "+-", "-+") else ""
    nanos, at = 0, 0
    for match in _TERM.finditer(text):
        if match.start() != at:
            break
        at = match.end()
        integer, fraction, unit, bare_fraction, bare_unit = match.groups()
        size = _UNITS[unit or bare_unit]
        if len(integer or "") > _MAX_DIGITS:
            raise conversion_error("google.protobuf.Duration")
        nanos += int(integer or 0) * size
        if part := (fraction or bare_fraction or "")[:_MAX_DIGITS]:
            nanos += int(part) * size // 10 ** len(part)
    if text != "0" and (not at or at != len(text)):
        raise conversion_error("google.protobuf.Duration")
    return checked_duration(-nanos if value.startswith("-") else nanos)


def parse_timestamp(value: Any) -> Timestamp:
    """Parse an RFC 3339 timestamp, or seconds since 1970."""
    if isinstance(value, Timestamp):
        return value
    if isinstance(value, int):
        return checked_timestamp(value * NANO)
    match = _TIME.fullmatch(value)
    if match is not None:
        day, clock, fraction, zone = match.groups()
        nanos = int((fraction or "0").ljust(9, "0")[:9])
        try:
            moment = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone == 'Z' else zone}")
        except ValueError:
            pass
        else:
            return Timestamp.of(moment, nanos)
    raise conversion_error("google.protobuf.Timestamp")


def parse_date(text: str) -> Timestamp:
    """Parse a date as its midnight in UTC."""
    return Timestamp.of(datetime.fromisoformat(text).replace(tzinfo=UTC))


def format_timestamp(value: Timestamp) -> str:
    nanos = value.nanos % NANO
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    return f"{value.moment():%Y-%m-%dT%H:%M:%S}{fraction}Z"


def format_duration(value: Duration) -> str:
    """Seconds, as protobuf formats a duration."""
    seconds, nanos = divmod(abs(value.nanos), NANO)
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    return f"{'-' if value.nanos < 0 else ''}{seconds}{fraction}s"


def _zone(name: str) -> tzinfo:
    if match := _OFFSET.fullmatch(name):
        length = timedelta(hours=int(match.group(2)), minutes=int(match.group(3)))
        if length >= _DAY:
            raise EvaluationError(f"unknown time zone {name}")
        return timezone(-length if match.group(1) == "-" else length)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise EvaluationError(f"unknown time zone {name}") from None


def _part(read: Callable[[datetime], int]) -> Callable[..., int]:
    def run(value: Timestamp, zone: str = "") -> int:
        moment = value.moment()
        try:
            return read(moment.astimezone(_zone(zone)) if zone else moment)
        except OverflowError:  # before the year 1 or after 9999 there
            raise EvaluationError(f"the time is out of range in the time zone {zone}") from None

    return run


def _whole_units(unit: int) -> Callable[[Duration], int]:
    def run(value: Duration) -> int:
        units = abs(value.nanos) // unit
        return units if value.nanos >= 0 else -units

    return run


_PARTS: dict[str, Callable[[datetime], int]] = {
    "getFullYear": lambda moment: moment.year,
    "getMonth": lambda moment: moment.month - 1,
    "getDate": lambda moment: moment.day,
    "getDayOfMonth": lambda moment: moment.day - 1,
    "getDayOfWeek": lambda moment: moment.isoweekday() % 7,
    "getDayOfYear": lambda moment: moment.timetuple().tm_yday - 1,
    "getHours": lambda moment: moment.hour,
    "getMinutes": lambda moment: moment.minute,
    "getSeconds": lambda moment: moment.second,
    "getMilliseconds": lambda moment: moment.microsecond // 1000,
}
_LENGTHS = {
    "getHours": _whole_units(3600 * NANO),
    "getMinutes": _whole_units(60 * NANO),
    "getSeconds": _whole_units(NANO),
    "getMilliseconds": _whole_units(10**6),
}

FUNCTIONS: tuple[FunctionDecl, ...] = (
    function("duration", parse_duration, overload(STRING, result=DURATION), overload(DURATION, result=DURATION)),
    function(
        "timestamp",
        parse_timestamp,
        overload(STRING, result=TIMESTAMP),
        overload(INT, result=TIMESTAMP),
        overload(TIMESTAMP, result=TIMESTAMP),
    ),
    *(
        function(
            name, _part(read), member_overload(TIMESTAMP, result=INT), member_overload(TIMESTAMP, STRING, result=INT)
        )
        for name, read in _PARTS.items()
    ),
    *(function(name, run, member_overload(DURATION, result=INT)) for name, run in _LENGTHS.items()),
)
