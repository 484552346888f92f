"""Kubernetes quantities: `100m`, `1.5Gi`, `1e3`.

The arithmetic is exact (in billionths) and formatting is canonical as in kube-apiserver, so that an object does not
change on a round trip. Smaller fractions are rounded up to a billionth.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache

from torchyard.api.errors import YardError

NANO = 10**9
_MILLI_IN_NANO = 10**6
# no real quantity has an exponent this large, and parsing it would need an enormous integer
_MAX_EXPONENT = 1000
_MAX_BINARY = 2**63 - 1
# the number of digits that upstream parses without big integers; only these keep their spelling
_FAST_DIGITS = 18
_FAST_BINARY_DIGITS = 14

_split = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)").fullmatch

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = {exponent // 10: suffix for suffix, exponent in _BINARY.items()} | {0: ""}


class QuantityError(YardError):
    """The text is not a valid quantity."""

    code = "BadQuantity"


class Format(Enum):
    """The notation of a quantity."""

    DECIMAL = "DecimalSI"
    BINARY = "BinarySI"
    EXPONENT = "DecimalExponent"


class Quantity:
    """An exact quantity and its notation. Immutable; comparison and hash use the amount only."""

    __slots__ = ("_text", "format", "nano")

    def __init__(self, nano: int, format: Format = Format.DECIMAL, *, text: str | None = None) -> None:
        self.nano = nano
        self.format = format
        self._text = text

    @classmethod
    def of(cls, amount: int) -> Quantity:
        """Return a quantity of whole units."""
        return cls(amount * NANO)

    def __str__(self) -> str:
        if self._text is None:
            self._text = _format(self.nano, self.format)
        return self._text

    def __repr__(self) -> str:
        return f"Quantity({self})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.nano == other.nano

    def __hash__(self) -> int:
        return hash(self.nano)

    def __lt__(self, other: Quantity) -> bool:
        return self.nano < other.nano

    def __le__(self, other: Quantity) -> bool:
        return self.nano <= other.nano

    def __gt__(self, other: Quantity) -> bool:
        return self.nano > other.nano

    def __ge__(self, other: Quantity) -> bool:
        return self.nano >= other.nano

    def __bool__(self) -> bool:
        return self.nano != 0

    def __add__(self, other: Quantity) -> Quantity:
        # zero takes the notation of the other operand
        return Quantity(self.nano + other.nano, self.format if self.nano else other.format)

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self.nano - other.nano, self.format if self.nano else other.format)

    def __mul__(self, times: int) -> Quantity:
        return Quantity(self.nano * times, self.format)

    def __neg__(self) -> Quantity:
        return Quantity(-self.nano, self.format)

    @property
    def value(self) -> int:
        """The quantity in whole units, rounded away from zero."""
        return _round_up(self.nano, NANO)

    @property
    def milli(self) -> int:
        """The quantity in milli-units, rounded away from zero."""
        return _round_up(self.nano, _MILLI_IN_NANO)

    @property
    def whole(self) -> bool:
        """Whether this is a whole number of units."""
        return self.nano % NANO == 0

    def round_to_milli(self) -> Quantity:
        """Round away from zero to milli-units, as the server does in resource lists."""
        if self.nano % _MILLI_IN_NANO == 0:
            return self
        return Quantity(self.milli * _MILLI_IN_NANO, self.format)


ZERO = Quantity(0, text="0")


def _round_up(nano: int, unit: int) -> int:
    return -(-nano // unit) if nano >= 0 else nano // unit


@lru_cache(maxsize=4096)
def _parse(text: str) -> Quantity:
    if text == "0":
        return ZERO
    parts = _split(text)
    if parts is None or not text:
        raise QuantityError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    sign, whole, fraction, suffix = parts.group(1), parts.group(2), parts.group(3) or "", parts.group(4)
    whole = whole.lstrip("0") or "0"
    base, exponent, format = _interpret(suffix)
    digits = whole + fraction
    try:
        amount = int(digits)
    except ValueError:
        raise QuantityError("unable to parse numeric part of quantity") from None
    scale = exponent - len(fraction)
    if base == 2:
        nano = -(-amount * 2**exponent * NANO // 10 ** len(fraction))
        nano = min(nano, _MAX_BINARY * NANO)
        if 0 < nano < NANO:
            format = Format.DECIMAL
        fast = _FAST_BINARY_DIGITS - len(whole) - exponent * 3 // 10 >= 0 and not fraction
        keep = fast and amount & 7 != 0
    else:
        nano = amount * 10 ** (scale + 9) if scale >= -9 else -(-amount // 10 ** (-9 - scale))
        fast = len(digits) <= _FAST_DIGITS and scale >= -9
        keep = fast and scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"
    return Quantity(-nano if sign == "-" else nano, format, text=text if keep else None)


def _interpret(suffix: str) -> tuple[int, int, Format]:
    if (exponent := _DECIMAL.get(suffix)) is not None:
        return 10, exponent, Format.DECIMAL
    if (exponent := _BINARY.get(suffix)) is not None:
        return 2, exponent, Format.BINARY
    if suffix[0] in "eE" and re.fullmatch("[-+]?[0-9]{1,9}", suffix[1:]):
        exponent = int(suffix[1:])
        if abs(exponent) <= _MAX_EXPONENT:
            return 10, exponent, Format.EXPONENT
    raise QuantityError("unable to parse quantity's suffix")


def _format(nano: int, format: Format) -> str:
    if nano == 0:
        return "0"
    if format is Format.BINARY and nano % NANO == 0 and abs(nano) >= 1024 * NANO:
        value, power = nano // NANO, 0
        while value % 1024 == 0 and power < 6:
            value //= 1024
            power += 1
        return f"{value}{_BINARY_SUFFIX[power]}"
    exponent = -9
    while nano % 1000 == 0 and (format is Format.EXPONENT or exponent < 18):
        nano //= 1000
        exponent += 3
    if format is Format.EXPONENT:
        return f"{nano}e{exponent}" if exponent else str(nano)
    return f"{nano}{_DECIMAL_SUFFIX[exponent]}"


def parse(text: str | int | float) -> Quantity:
    """Parse a quantity; JSON numbers are read as their digits. Raises `QuantityError`."""
    return _parse(text.strip() if isinstance(text, str) else _digits(text))


def _digits(number: int | float) -> str:
    if isinstance(number, float):
        return str(int(number)) if number.is_integer() else repr(number)
    return str(number)


# The same few quantities recur. typed=True, because 1 and 1.0 are equal.
@lru_cache(maxsize=4096, typed=True)
def canonical(text: str | int | float) -> str:
    """Return the canonical form: `1000m` is `1`, `1024Mi` is `1Gi`. Raises `QuantityError`."""
    return str(parse(text))


def compare(left: str | int | float, right: str | int | float) -> int:
    """Return -1, 0 or 1 if `left` is less than, equal to or greater than `right`."""
    left_nano, other = parse(left).nano, parse(right).nano
    return (left_nano > other) - (left_nano < other)
