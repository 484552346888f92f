"""Regular expressions in Go's syntax, run by RE2 in linear time, so that no pattern can hang the server."""

from __future__ import annotations

import functools
from typing import Any

_TRAILING = "trailing \\"
# Go's messages for RE2's errors.
_GO_MESSAGES = {
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
    """A pattern that does not parse, with the message of Go's regexp package."""


@functools.lru_cache(maxsize=4096)
def pattern(expression: str) -> Any:
    """The compiled pattern; its `search(text)` returns a match or None."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(expression, options=options)
    except re2.error as error:
        message = error.args[0]
        reason, _, excerpt = (message.decode() if isinstance(message, bytes) else str(message)).partition(": ")
        excerpt = "" if reason == _TRAILING else excerpt or expression
        raise PatternError(f"error parsing regexp: {_GO_MESSAGES.get(reason, reason)}: `{excerpt}`") from None
