"""Startup, readiness and liveness probes of the running containers of a pod, as the kubelet's prober runs them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.api.pod import kubelet_messages as messages
from torchyard.node.pod.handlers import HandlerResult, UnknownPort, is_own_failure, run_handler
from torchyard.node.pod.sandbox import PodSandbox
from torchyard.node.shim.client import ShimClient

log = logging.getLogger(__name__)

KINDS = {"startupProbe": "Startup", "readinessProbe": "Readiness", "livenessProbe": "Liveness"}


class ProbeWorker:
    """Runs the probes of one attempt of one container. `started` and `ready` are what the status shows."""

    def __init__(
        self,
        shim: ShimClient,
        container: Object,
        *,
        host: str,
        changed: Callable[[], None],
        report: Callable[[str, str], None],
        kill: Callable[[str], None],
    ) -> None:
        self._shim, self._container, self._host = shim, container, host
        self._changed, self._report, self._kill = changed, report, kill
        self.started = not container.get("startupProbe")
        self.ready = not container.get("readinessProbe")
        self._has_started = asyncio.Event()
        if self.started:
            self._has_started.set()
        self._tasks = [asyncio.create_task(self._run(kind)) for kind in KINDS if container.get(kind)]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, kind: str) -> None:
        probe = self._container[kind]
        if kind != "startupProbe":
            await self._has_started.wait()
        await asyncio.sleep(probe.get("initialDelaySeconds") or 0)
        period = probe.get("periodSeconds") or 10
        successes = failures = 0
        while True:
            result = await self._probe(kind, probe)
            if result is None:
                pass  # as the kubelet, count neither a success nor a failure
            elif result.passed:
                if result.is_warning:
                    warning = messages.probe_warning(KINDS[kind], result.message)
                    self._report(messages.REASON_PROBE_WARNING, warning)
                successes, failures = successes + 1, 0
                if successes >= (probe.get("successThreshold") or 1):
                    self._succeeded(kind)
                    if kind == "startupProbe":
                        return
            else:
                successes, failures = 0, failures + 1
                self._report(messages.REASON_UNHEALTHY, messages.probe_failed(KINDS[kind], result.message))
                if failures >= (probe.get("failureThreshold") or 3):
                    self._gave_up(kind)
                    if kind != "readinessProbe":
                        return
            await asyncio.sleep(period)

    async def _probe(self, kind: str, probe: Object) -> HandlerResult | None:
        """Run a probe; None if it says nothing about the container."""
        seconds = probe.get("timeoutSeconds") or 1
        try:
            return await run_handler(self._shim, self._container, probe, host=self._host, seconds=seconds)
        except UnknownPort as error:
            self._report(messages.REASON_UNHEALTHY, messages.probe_errored(KINDS[kind], error))
            return None
        except (YardError, OSError) as error:
            if is_own_failure(error):
                log.warning("probe not run: container=%s error=%r", self._container["name"], str(error))
                return None
            return HandlerResult(False, str(error))
        except Exception as error:  # what a container sends must not end its probes
            log.exception("probe failed: container=%s", self._container["name"])
            return HandlerResult(False, f"{type(error).__name__}: {error}")

    def _succeeded(self, kind: str) -> None:
        if kind == "readinessProbe" and not self.ready:
            self.ready = True
            self._changed()
        elif kind == "startupProbe":
            self.started = True
            self._has_started.set()
            self._changed()

    def _gave_up(self, kind: str) -> None:
        if kind == "readinessProbe":
            if self.ready:
                self.ready = False
                self._changed()
        else:
            self._kill(KINDS[kind].lower())


class ProbeManager:
    """The probe workers of a pod: each begins and ends with the attempt it belongs to."""

    def __init__(
        self, sandbox: PodSandbox, *, changed: Callable[[], None], kill: Callable[[Object, str], None]
    ) -> None:
        self._sandbox, self._changed, self._kill = sandbox, changed, kill
        self._workers: dict[str, tuple[int, ProbeWorker]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def worker(self, container: Object, attempt: int | None) -> ProbeWorker | None:
        """The worker of the running attempt (None: no attempt runs), if the container has probes."""
        name = container["name"]
        current = self._workers.get(name)
        if current and current[0] == attempt:
            return current[1]
        if current:
            del self._workers[name]
            task = asyncio.create_task(current[1].close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        if attempt is None or not any(container.get(kind) for kind in KINDS):
            return None
        worker = ProbeWorker(
            self._sandbox.shim,
            container,
            host=self._sandbox.ip,
            changed=self._changed,
            report=lambda reason, message: self._sandbox.event(reason, message, container=name, kind="Warning"),
            kill=lambda kind: self._kill(container, kind),
        )
        self._workers[name] = (attempt, worker)
        return worker

    async def close(self) -> None:
        for _, worker in self._workers.values():
            await worker.close()
        await asyncio.gather(*self._closing)
