"""The options of `kubectl logs`, shared by the API server and the node."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogOptions:
    """`since` is an RFC 3339 time with nanoseconds in UTC, so that it compares with log lines as text."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    since: str = ""
    tail: int | None = None
    limit: int | None = None
    stream: str = ""  # stdout or stderr only
