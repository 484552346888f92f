"""What the coordinator does by the clock: end leases, detect hangs, flush the ledger, rebalance."""

from __future__ import annotations

import asyncio
import time

from torchyard.elastic import wire
from torchyard.elastic.coordinator.coordinator import Coordinator
from torchyard.elastic.wire import StopCause, WorkerPhase

FLUSH_EVERY = 0.05
REBALANCE_EVERY = 1.0
WORKING_PHASES = frozenset({WorkerPhase.LOADING, WorkerPhase.COMPUTING, WorkerPhase.APPLYING})
"""Phases in which a worker waits for no other: no progress in one of them is a hang. The program's loop body is not."""


async def expire_leases(coordinator: Coordinator) -> None:
    """Expel every worker that is silent longer than its lease. A delay of this loop itself extends all leases."""
    pause = coordinator.settings.lease / 10
    last = time.monotonic()
    while True:
        await asyncio.sleep(pause)
        now = time.monotonic()
        if (late := now - last - pause) > pause:
            for peer in coordinator.workers.values():
                peer.last_seen += late
        last = now
        coordinator.lease.shorten(now)
        lease = coordinator.lease.seconds
        for peer in list(coordinator.workers.values()):
            if now - peer.last_seen > lease and coordinator.outcome is None:
                coordinator.lease.expelled(peer.hello.name, peer.hello.pid)
                peer.send(wire.Stop(StopCause.EXPELLED, f"no sign of life for {lease} s"))
                coordinator.remove_worker(peer, f"gave no sign of life for {lease} s (last in {peer.phase})")


def detect_hangs(coordinator: Coordinator, now: float) -> None:
    """Have the agent kill every worker that sends heartbeats but makes no progress in a working phase."""
    for name, peer in coordinator.workers.items():
        seconds = now - peer.phase_since
        hung = peer.phase in WORKING_PHASES and seconds > coordinator.settings.hang_after
        if hung and not peer.hang_reported:
            peer.hang_reported = True
            message = f"{name} has been {peer.phase} step {peer.step + 1} for {seconds:.0f} s"
            coordinator.ledger_writer.add_event("WorkerHung", message, step=peer.step, phase=peer.phase)
            for agent in coordinator.agents.values():
                if agent.hello.node == peer.hello.node:
                    agent.send(wire.KillHungWorker(name, message))


async def run_timers(coordinator: Coordinator) -> None:
    """Flush the ledger, and react to deadlines, for as long as the coordinator runs."""
    ledger_writer = coordinator.ledger_writer
    return_by = time.monotonic() + coordinator.settings.return_within
    rebalance_at = time.monotonic() + REBALANCE_EVERY
    while True:
        await asyncio.sleep(FLUSH_EVERY)
        ledger_writer.flush()
        if ledger_writer.failure is not None:
            coordinator.fail(f"the ledger cannot be written: {ledger_writer.failure}")
        now = time.monotonic()
        membership = coordinator.membership
        if not membership.started and now > coordinator.start_by and coordinator.workers:
            coordinator.execute(membership.start_without_missing())
        if membership.expected and now > return_by:
            coordinator.execute(membership.workers_missing(sorted(membership.expected), "did not come back"))
        detect_hangs(coordinator, now)
        if now > rebalance_at:
            rebalance_at = now + REBALANCE_EVERY
            coordinator.execute(membership.rebalance())
