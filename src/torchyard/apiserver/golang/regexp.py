"""Regular expressions in Go's syntax, run in linear time: RE2, so that no pattern can hang the server."""

from __future__ import annotations

import functools
from typing import Any

_TRAILING = "trailing \\"
# How Go words the faults RE2 finds in a pattern.
_GO_WORDS = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "unexpected )": "unexpected )",
    _TRAILING: "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}


class PatternError(ValueError):
    """A pattern that does not parse, in the words of Go's regexp package."""


@functools.lru_cache(maxsize=4096)
def pattern(expression: str) -> Any:
    """The compiled pattern; its `search(text)` answers a match or None."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(expression, options=options)
    except re2.error as error:
        said = error.args[0]
        words, _, part = (said.decode() if isinstance(said, bytes) else str(said)).partition(": ")
        part = "" if words == _TRAILING else part or expression
        raise PatternError(f"error parsing regexp: {_GO_WORDS.get(words, words)}: `{part}`") from None
