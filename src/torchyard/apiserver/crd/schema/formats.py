"""String formats of OpenAPI schemas, as loose and as strict as kube-apiserver's (go-openapi's strfmt)."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import date
from email.utils import parseaddr
from functools import cache, lru_cache
from urllib.parse import urlsplit

from torchyard.apiserver.golang.regexp import pattern

_HEX = "[0-9A-Fa-f]"
_PATTERNS = {
    "bsonobjectid": f"{_HEX}{{24}}",
    "creditcard": r"(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}"
    r"|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11})",
    "hexcolor": f"#?({_HEX}{{3}}|{_HEX}{{6}})",
    "rgbcolor": r"rgb\(\s*(\d{1,2}|1\d\d|2[0-4]\d|25[0-5])\s*(,\s*(\d{1,2}|1\d\d|2[0-4]\d|25[0-5])\s*){2}\)",
    "ssn": r"\d{3}[- ]?\d{2}[- ]?\d{4}",
    "uuid": f"{_HEX}{{8}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{12}}",
    "uuid3": f"{_HEX}{{8}}-?{_HEX}{{4}}-?3{_HEX}{{3}}-?{_HEX}{{4}}-?{_HEX}{{12}}",
    "uuid4": f"{_HEX}{{8}}-?{_HEX}{{4}}-?4{_HEX}{{3}}-?[89ABab]{_HEX}{{3}}-?{_HEX}{{12}}",
    "uuid5": f"{_HEX}{{8}}-?{_HEX}{{4}}-?5{_HEX}{{3}}-?[89ABab]{_HEX}{{3}}-?{_HEX}{{12}}",
    "mac": f"{_HEX}{{2}}([:-]{_HEX}{{2}}){{5}}(([:-]{_HEX}{{2}}){{2}})?|{_HEX}{{4}}(\\.{_HEX}{{4}}){{2,3}}",
}
_WORD = r"[a-zA-Z0-9\p{S}\p{L}]"
_HOSTNAME = (
    rf"^({_WORD}((-?{_WORD}{{0,62}})?)|({_WORD}(([a-zA-Z0-9-\p{{S}}\p{{L}}]{{0,61}}{_WORD})?)(\.)){{1,}}"
    r"([a-zA-Z\p{L}]){2,63})$"
)
_DATE_TIME = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt](?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d+)?(?:[Zz]|[+-]\d{2}:?\d{2})", re.ASCII
)
_USUAL_LENGTH = len("2006-01-02T15:04:05.000000000+00:00")
_GO_DURATION = r"[+-]?(?:0|(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+)"
_UNITS = (
    r"nanoseconds?|nanos?|nans?|nanos|ns|microseconds?|micros?|us|µs|milliseconds?|millis?|ms|seconds?|secs?|s"
    r"|minutes?|mins?|m|hours?|hrs?|hour|h|days?|d|weeks?|wks?|w"
)
_WORDY_DURATION = rf"(?i:(\d+)\s*(?:{_UNITS})\s*)+"
_ISO_DURATION = r"P(?=.)(\d+Y)?(\d+M)?(\d+W)?(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?"


def valid(name: str, value: str) -> bool:
    """Whether a string has a format; unknown formats accept every string."""
    text = _PATTERNS.get(name)
    if text is not None:
        return _compiled(f"(?:{text})", re.ASCII).fullmatch(value) is not None
    check = _CHECKS.get(name)
    return check is None or check(value)


@cache  # of a few patterns, most of which no schema uses
def _compiled(text: str, flags: int = 0) -> re.Pattern[str]:
    return re.compile(text, flags)


def _date(value: str) -> bool:
    try:
        return len(value) == 10 and bool(date.fromisoformat(value))
    except ValueError:
        return False


def _date_time(value: str) -> bool:
    return _is_date_time(value) if len(value) <= _USUAL_LENGTH else _is_date_time.__wrapped__(value)


@lru_cache(maxsize=1024)  # many timestamps within a second are equal
def _is_date_time(value: str) -> bool:
    match = _DATE_TIME.fullmatch(value)
    return match is not None and _date(match.group(1))


def _duration(value: str) -> bool:
    return any(_compiled(shape).fullmatch(value) for shape in (_GO_DURATION, _WORDY_DURATION, _ISO_DURATION))


def _byte(value: str) -> bool:
    try:
        return bool(base64.b64decode(value, validate=True))
    except binascii.Error:
        return False


def _uri(value: str) -> bool:
    """Go's url.ParseRequestURI: absolute, or a path from the root; no blanks or control characters."""
    if not value or any(ord(letter) <= 0x20 or ord(letter) == 0x7F for letter in value):
        return False
    if value.startswith("/"):
        return True
    try:
        return re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", value) is not None and urlsplit(value) is not None
    except ValueError:
        return False


def _email(value: str) -> bool:
    address = parseaddr(value)[1]
    local, _, domain = address.rpartition("@")
    return bool(local and domain) and not re.search(r"[\s<>]", address)


def _ip(version: int) -> Callable[[str], bool]:
    def check(value: str) -> bool:
        # The real server reads leading zeros as decimal.
        text = re.sub(r"(^|\.)0+(?=\d)", r"\1", value) if version == 4 else value
        try:
            return ipaddress.ip_address(text).version == version
        except ValueError:
            return False

    return check


def _cidr(value: str) -> bool:
    try:
        return "/" in value and bool(ipaddress.ip_interface(value))
    except ValueError:
        return False


def _isbn10(value: str) -> bool:
    text = re.sub(r"[\s-]", "", value)
    if not re.fullmatch(r"\d{9}[\dXx]", text):
        return False
    return sum((10 - at) * (10 if digit in "Xx" else int(digit)) for at, digit in enumerate(text)) % 11 == 0


def _isbn13(value: str) -> bool:
    text = re.sub(r"[\s-]", "", value)
    return (
        bool(re.fullmatch(r"\d{13}", text))
        and sum((3 if at % 2 else 1) * int(d) for at, d in enumerate(text)) % 10 == 0
    )


_CHECKS: dict[str, Callable[[str], bool]] = {
    "byte": _byte,
    "cidr": _cidr,
    "date": _date,
    "date-time": _date_time,
    "datetime": _date_time,
    "duration": _duration,
    "email": _email,
    "hostname": lambda value: pattern(_HOSTNAME).search(value) is not None,
    "ipv4": _ip(4),
    "ipv6": _ip(6),
    "isbn": lambda value: _isbn10(value) or _isbn13(value),
    "isbn10": _isbn10,
    "isbn13": _isbn13,
    "uri": _uri,
}
# All other formats are documentation: the real server strips them.
KNOWN = frozenset({*_PATTERNS, *_CHECKS, "password"})
