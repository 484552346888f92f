"""Times and durations in the formats of Kubernetes. This module reads no clock: callers pass the time."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from math import floor

from torchyard.api.errors import YardError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST, LATEST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


class TimeError(YardError):
    """The text is not a valid time or duration."""

    code = "BadTime"


def to_rfc3339(moment: datetime) -> str:
    """Format whole seconds in UTC, as in `metadata.creationTimestamp`."""
    return _format_second(floor(moment.timestamp()))


@lru_cache(maxsize=64)  # cached, because many calls fall within the same second
def _format_second(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).isoformat()[:19] + "Z"


def shift(moment: datetime, seconds: float) -> datetime:
    """The moment so many seconds later, within the years that a time can have: users may write any int64."""
    try:
        return min(max(moment + timedelta(seconds=seconds), EARLIEST), LATEST)
    except OverflowError:
        return LATEST if seconds > 0 else EARLIEST


def to_rfc3339_micro(moment: datetime) -> str:
    """Format microseconds in UTC, as in a Lease's `renewTime` and an Event's `eventTime`."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:26] + "Z"


_rfc3339 = re.compile(r"(\d{4}-\d{2}-\d{2})T(\d{2}:\d{2}:\d{2})(?:[.,](\d+))?(Z|[+-]\d{2}:\d{2})").fullmatch


def parse_rfc3339(text: str) -> datetime:
    """Parse a time with a zone; fractions below a microsecond are truncated."""
    parts = _rfc3339(text)
    if parts is not None:
        date, clock, fraction, zone = parts.groups()
        micro = f".{(fraction + '000000')[:6]}" if fraction else ""
        try:
            moment = datetime.fromisoformat(f"{date}T{clock}{micro}{'+00:00' if zone == 'Z' else zone}")
            if zone != "Z":
                moment.astimezone(UTC)  # the first and the last hours of the calendar may be none in UTC
        except (ValueError, OverflowError):
            pass
        else:
            return moment
    raise TimeError(f'"{text}" is not a valid RFC 3339 time', hint='use for example "2006-01-02T15:04:05Z"')


_UNITS = {
    "ns": Decimal("0.000000001"),
    "us": Decimal("0.000001"),
    "µs": Decimal("0.000001"),
    "μs": Decimal("0.000001"),
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
}
_duration = re.compile(r"([-+]?)((?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+|0)").fullmatch
_term = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)").findall
# the largest int64 number of nanoseconds
_MAX_NANOSECONDS = Decimal(2**63) / 10**9


def parse_duration(text: str) -> timedelta:
    """Parse a Go duration such as `1h15m30.5s`."""
    parts = _duration(text)
    if parts is None:
        raise TimeError(f'time: invalid duration "{text}"', hint='use for example "1h15m30s"')
    seconds = sum((Decimal(number) * _UNITS[unit] for number, unit in _term(parts.group(2))), Decimal(0))
    if seconds >= _MAX_NANOSECONDS:
        raise TimeError(f'time: invalid duration "{text}"', hint="the maximum is about 292 years")
    length = timedelta(microseconds=float(seconds * 1_000_000))
    return -length if parts.group(1) == "-" else length


def format_duration(length: timedelta) -> str:
    """Format a duration as Go does: `1h15m30.5s`, `1.5ms`, `0s`."""
    micro = length // timedelta(microseconds=1)
    sign, micro = ("-", -micro) if micro < 0 else ("", micro)
    if micro == 0:
        return "0s"
    if micro < 1000:
        return f"{sign}{micro}µs"
    if micro < 1_000_000:
        return f"{sign}{_trim(micro, 1000)}ms"
    minutes, rest = divmod(micro, 60_000_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{_trim(rest, 1_000_000)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{sign}{hours}h{text}" if hours else f"{sign}{text}"


def _trim(amount: int, unit: int) -> str:
    return f"{Decimal(amount) / unit:f}"


def human_duration(length: timedelta) -> str:  # noqa: PLR0911 - one return per range, as in kubectl
    """Format an age as kubectl does: `95s`, `3m7s`, `48m`, `4h45m`, `29h`, `6d1h`, `48d`, `2y3d`."""
    seconds = int(length.total_seconds())
    if seconds < -1:
        return "<invalid>"
    if seconds < 120:
        return f"{max(seconds, 0)}s"
    minutes, hours = seconds // 60, seconds // 3600
    if minutes < 10:
        return _pair(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _pair(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if days < 8:
        return _pair(days, "d", hours % 24, "h")
    if days < 365 * 2:
        return f"{days}d"
    if days < 365 * 8:
        return _pair(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _pair(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"
