"""The API server's clock, as its responses tell it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from torchyard.kube.client import ApiResponse, Transport
from torchyard.operator.clock import ServerClock

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Responses:
    def __init__(self, *dates: str) -> None:
        self._dates = list(dates)

    async def request(self, _method: str, _path: str, **_: Any) -> ApiResponse:
        return ApiResponse(200, b"{}", {"date": self._dates.pop(0)})


def clock(*dates: str) -> ServerClock:
    return ServerClock(cast(Transport, Responses(*dates)), lambda: NOW)


async def test_the_time_is_that_of_the_server() -> None:
    server_clock = clock("Thu, 01 Jan 2026 11:00:00 GMT")
    await server_clock.sync()
    assert server_clock.now() == NOW - timedelta(hours=1)


@pytest.mark.parametrize("date", ["yesterday", "Thu, 01 Jan 2026 11:00:00 -0000", "Thu, 99 Jan 2026 11:00:00 GMT"])
async def test_a_date_that_is_none_changes_nothing(date: str) -> None:
    server_clock = clock("Thu, 01 Jan 2026 11:00:00 GMT", date)
    await server_clock.sync()
    await server_clock.sync()
    assert server_clock.now() == NOW - timedelta(hours=1)
