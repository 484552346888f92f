"""Messages survive the wire; what is not a message is refused."""

from __future__ import annotations

import pytest

from torchyard.elastic import wire
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.wire import (
    Fence,
    Hello,
    Message,
    StartWorld,
    StepsApplied,
    Stop,
    StopCause,
    StoreValue,
    WorkerProgress,
)

MESSAGES: list[Message] = [
    wire.Authentication("job", "token", "w0"),
    Hello(
        "w0",
        config={"records": 3},
        progress=WorkerProgress(Fence(1, 2), 3, True, 4),
        members=("a", "b"),
    ),
    StartWorld(Fence(1, 2), ("a", "b"), 3, "a", ("b",), restore=False, speeds=(1.0, 0.5)),
    StepsApplied(Fence(2, 1), ((1, 0.5, "d"), (2, None, ""))),
    StoreValue(Fence(1, 1), "key", "dmFsdWU="),
    Stop(StopCause.FINISHED),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_back_equal(message: Message) -> None:
    frame = wire.encode(message)
    assert wire.frame_length(frame[:4]) == len(frame) - 4
    assert wire.decode(frame[4:]) == message


def test_fields_of_a_newer_version_are_ignored() -> None:
    assert wire.decode(b'{"kind":"stop","cause":"finished","later":1}') == Stop(StopCause.FINISHED)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"kind":"nonsense"}', b'{"kind":"stop"}', b'{"cause":"x"}', b"\xff"])
def test_what_is_not_a_message_is_refused(body: bytes) -> None:
    with pytest.raises(ElasticError, match="not a message"):
        wire.decode(body)


def test_an_http_request_is_not_taken_for_a_frame() -> None:
    with pytest.raises(ElasticError, match="larger than"):
        wire.frame_length(b"GET ")
