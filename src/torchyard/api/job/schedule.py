"""The schedule of a CronJob: five fields, or a word such as `@hourly`. Only its form is judged here."""

from __future__ import annotations

from torchyard.api import times

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
_WORDS = frozenset({"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"})


class _BadSchedule(Exception):
    """Why a field does not parse; never leaves this module."""


def schedule_problem(schedule: str) -> str:
    """What is wrong with a schedule, in the words of the library that upstream uses; empty when nothing is."""
    text = schedule.strip()
    if text.startswith(("TZ=", "CRON_TZ=")):
        text = text.partition(" ")[2].strip()
    if text.startswith("@"):
        return _word_problem(text)
    fields = text.split()
    if len(fields) != 5:
        return f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]"
    try:
        for field, (low, high, names) in zip(fields, _BOUNDS, strict=True):
            for part in field.split(","):
                if part:
                    _check_range(part, low, high, names)
    except _BadSchedule as problem:
        return str(problem)
    return ""


def _word_problem(word: str) -> str:
    if word in _WORDS:
        return ""
    if word.startswith("@every "):
        try:
            times.parse_duration(word.removeprefix("@every "))
        except times.TimeError as error:
            return f"failed to parse duration {word}: {error.message}"
        return ""
    return f"unrecognized descriptor: {word}"


def _check_range(text: str, low: int, high: int, names: dict[str, int]) -> None:
    span, *steps = text.split("/")
    limits = span.split("-")
    if limits[0] in ("*", "?"):
        start, end = low, high
    else:
        start = _number(limits[0], names)
        if len(limits) > 2:
            raise _BadSchedule(f"too many hyphens: {text}")
        end = _number(limits[1], names) if len(limits) == 2 else start
    if len(steps) > 1:
        raise _BadSchedule(f"too many slashes: {text}")
    step = _plain_number(steps[0]) if steps else 1
    if steps and len(limits) == 1:
        end = high
    if start < low:
        raise _BadSchedule(f"beginning of range ({start}) below minimum ({low}): {text}")
    if end > high:
        raise _BadSchedule(f"end of range ({end}) above maximum ({high}): {text}")
    if start > end:
        raise _BadSchedule(f"beginning of range ({start}) beyond end of range ({end}): {text}")
    if step == 0:
        raise _BadSchedule(f"step of range should be a positive number: {text}")


def _number(text: str, names: dict[str, int]) -> int:
    named = names.get(text.lower())
    return _plain_number(text) if named is None else named


def _plain_number(text: str) -> int:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isascii() or not digits.isdigit():
        raise _BadSchedule(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax')
    if int(text) < 0:
        raise _BadSchedule(f"negative number ({int(text)}) not allowed: {text}")
    return int(text)
