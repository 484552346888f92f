"""Scalars with a canonical form, decoded as a Go API server does, with its error messages.

Each function takes a JSON value and returns the form that is stored. A ValueError has Go's message.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64encode
from datetime import UTC, datetime

_LAYOUT = "2006-01-02T15:04:05Z07:00"
_MICRO_LAYOUT = "2006-01-02T15:04:05.000000Z07:00"
# Go parses a time element by element and reports the first one that does not match.
_ELEMENTS = (
    ("2006", r"\d{4}"),
    ("-", "-"),
    ("01", r"\d\d"),
    ("-", "-"),
    ("02", r"\d\d"),
    ("T", "T"),
    ("15", r"\d\d?"),
    (":", ":"),
    ("04", r"\d\d"),
    (":", ":"),
    ("05", r"\d\d(?:[.,]\d+)?"),
    ("Z07:00", r"Z|[+-]\d\d:\d\d"),
)
# Go stores this moment as the absence of a time, which is null in JSON.
_ZERO = datetime(1, 1, 1, tzinfo=UTC)
_MICRO_SECONDS = r"\d\d[.,]\d{6}"  # a layout with zeros takes exactly as many digits
_RANGES = (("month", 1, 12), ("day", 1, 31), ("hour", 0, 23), ("minute", 0, 59), ("second", 0, 59))


def moment(text: str) -> datetime:
    """Parse an RFC 3339 time."""
    try:
        if len(text) == 20 and text[19] == "Z" and text[10] == "T":
            return datetime.fromisoformat(text)
    except ValueError:
        pass
    return _moment(text)


def _moment(text: str, *, micro: bool = False) -> datetime:
    rest, parts = text, []
    for name, pattern in _ELEMENTS:
        match = re.match(_MICRO_SECONDS if micro and name == "05" else pattern, rest, re.ASCII)
        if match is None:
            has_seconds = micro and name == "05" and re.match(r"\d\d", rest, re.ASCII)
            element, rest = (".000000", rest[2:]) if has_seconds else (name, rest)
            layout = _MICRO_LAYOUT if micro else _LAYOUT
            raise ValueError(f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as "{element}"')
        parts.append(match[0])
        rest = rest[match.end() :]
    if rest:
        raise ValueError(f'parsing time "{text}": extra text: "{rest}"')
    date, clock, zone = "".join(parts[:5]), parts[6].rjust(2, "0") + ":" + parts[8], parts[11]
    seconds, _, fraction = parts[10].replace(",", ".").partition(".")
    for (name, minimum, maximum), part in zip(_RANGES, (*parts[2:5:2], parts[6], parts[8], seconds), strict=True):
        if not minimum <= int(part) <= maximum:
            raise ValueError(f'parsing time "{text}": {name} out of range')
    spelled = f"{date}T{clock}:{seconds}.{fraction[:6].ljust(6, '0')}{'+00:00' if zone == 'Z' else zone}"
    try:
        return datetime.fromisoformat(spelled)
    except ValueError:
        raise ValueError(f'parsing time "{text}": day out of range') from None


def time(text: str) -> str | None:
    """Return whole seconds in UTC, as metav1.Time is written."""
    parsed = moment(text)
    if parsed.microsecond == 0 and text[-1] == "Z" and len(text) == 20:
        return text if parsed.year > 1 else _seconds(parsed)
    return _seconds(parsed)


def _seconds(parsed: datetime) -> str | None:
    moment = _utc(parsed).replace(microsecond=0)
    return None if moment == _ZERO else f"{moment.isoformat()[:19]}Z"


def micro_time(text: str) -> str | None:
    """Return microseconds in UTC, as metav1.MicroTime is written."""
    moment = _utc(_moment(text, micro=True))
    return None if moment == _ZERO else f"{moment.isoformat(timespec='microseconds')[:26]}Z"


def _utc(parsed: datetime) -> datetime:
    try:
        return parsed.astimezone(UTC)
    except OverflowError:
        raise ValueError("Time.MarshalJSON: year outside of range [0,9999]") from None


_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


def base64(text: str) -> str:
    """Return standard base64 with padding; line breaks in the text are dropped."""
    try:
        raw = binascii.a2b_base64(text.replace("\n", "").replace("\r", "").encode(), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError):
        raise ValueError(f"illegal base64 data at input byte {_illegal(text)}") from None
    return b64encode(raw).decode()


def _illegal(text: str) -> int:
    """Return where encoding/base64 stops: at an illegal character, or at the start of an incomplete group."""
    group = 0
    for index, character in enumerate(text.encode("utf-8", "replace").decode("latin-1")):
        if character in "\r\n":
            continue
        if character not in _BASE64:
            # padding is allowed only in the third and fourth position of a group
            if character != "=" or group < 2:
                return index
            after = text[index + 1 :].lstrip("\r\n")
            if group == 2 and after[:1] != "=":
                return index
            return index + 1 if group == 3 else index + 2
        group = (group + 1) % 4
    return len(text) - group
