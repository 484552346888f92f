"""A connection to a worker or an agent, and what the coordinator knows of it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from torchyard.elastic import wire
from torchyard.elastic.wire import Message, WorkerPhase


@dataclass(slots=True)
class Peer:
    """One accepted connection.

    Attributes:
        hello: how the peer introduced itself.
        writer: the stream to the peer.
        last_seen: when its last message arrived, on the monotonic clock.
        step: the last step that it applied.
        phase: what its training thread does.
        phase_since: since when step and phase have not changed.
        hang_reported: whether its agent has been asked to kill it.
    """

    hello: wire.Hello
    writer: asyncio.StreamWriter
    last_seen: float
    step: int = 0
    phase: WorkerPhase = WorkerPhase.UNKNOWN
    phase_since: float = 0.0
    hang_reported: bool = False

    def send(self, message: Message) -> None:
        self.send_frame(wire.encode(message))

    def send_frame(self, frame: bytes) -> None:
        """Send an encoded message, so that one encoding serves many peers."""
        if not self.writer.is_closing():
            self.writer.write(frame)

    def update_phase(self, step: int, phase: WorkerPhase) -> None:
        if (step, phase) != (self.step, self.phase):
            self.step, self.phase, self.phase_since = step, phase, time.monotonic()
