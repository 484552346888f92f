"""The master of a job: runs its coordinator and its worker pods. Everything that it must keep is in the ledger.

Two processes may die at any time: the coordinator, which this process restarts, and this process, which `supervisor`
restarts. Workers train on meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import secrets
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from torchyard.api.errors import StatusError, YardError
from torchyard.api.gvr import PODS, SERVICES
from torchyard.api.objects import Object
from torchyard.api.pod.phases import has_ended
from torchyard.elastic import sidecar, wire
from torchyard.elastic.bundle import BOOTSTRAP
from torchyard.elastic.cli import request_coordinator
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.job_record import JobRecord, has_job, read_record, write_record
from torchyard.elastic.run import COORDINATOR_REFUSED
from torchyard.elastic.wire import StopCause
from torchyard.elasticdl import pods, worker_plan
from torchyard.kube.client import Client, Unreachable

RECONCILE_EVERY = 1.0
"""Seconds between two reconciliations without a watch event."""
ALL_ADDRESSES = "0.0.0.0"  # noqa: S104  # workers run in other pods; the token protects the port


def log_line(text: str) -> None:
    """Write a line with the time to the pod's log."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


class Master:
    """Runs one job.

    Args:
        args: the flags of the job.
        client: a client of the API server.
        state: the directory of the job's record and ledger.
    """

    def __init__(self, args: argparse.Namespace, client: Client, state: Path) -> None:
        self._args = args
        self._client = client
        self._state = state
        self._record = self._create_record()
        self._writer: asyncio.StreamWriter | None = None
        self._target = 0
        self._seen_target = ""
        self._own_errors = 0
        self._errors_at_step: int | None = None
        self._outcomes_reported: set[str] = set()
        self._pods_seen: dict[str, Object] = {}
        self._wake = asyncio.Event()
        self.stop: wire.Stop | None = None

    def _create_record(self) -> JobRecord:
        """Write the job's record, with the token and the worker numbers of an earlier master."""
        args = self._args
        earlier = read_record(self._state) if has_job(self._state) else None
        record: JobRecord = {
            "job": f"{args.namespace}/{args.job_name}",
            "token": earlier["token"] if earlier else secrets.token_urlsafe(24),
            "address": f"127.0.0.1:{args.port}",
            "workers": args.num_workers,
            "next_worker": earlier["next_worker"] if earlier else 0,
            "lease": sidecar.LEASE,
            "hang_after": sidecar.HANG_AFTER,
            "limits": {
                "min_workers": 1,
                "max_workers": max(args.num_workers, 1),
                "multiple_of": 1,
                "target_workers": args.num_workers,
            },
            "runner": os.getpid(),
        }
        write_record(self._state, record)
        return record

    @property
    def _name(self) -> str:
        return pods.master_name(self._args.job_name)

    async def run(self) -> int:
        namespace = self._args.namespace
        self._master_pod = await self._client.get(PODS, self._name, namespace)
        await self._create_service()
        await self._set_status_label("Running")
        tasks = [asyncio.create_task(work()) for work in (self._run_coordinator, self._run_agent, self._watch)]
        try:
            while self.stop is None:
                await self._reconcile_workers()
                with suppress(TimeoutError):
                    async with asyncio.timeout(RECONCILE_EVERY):
                        await self._wake.wait()
                self._wake.clear()
            log_line(f"job ended: cause={self.stop.cause} message={self.stop.message}")
            await self._finish()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return 0 if self.stop.cause is StopCause.FINISHED else 1

    async def _finish(self) -> None:
        """Wait for the workers, which have got the same `Stop`, then set the status label of the master pod."""
        deadline = time.monotonic() + pods.GRACE
        while any(not has_ended(pod) for pod in await self._pods()) and time.monotonic() < deadline:
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(RECONCILE_EVERY):
                    await self._wake.wait()
        assert self.stop is not None
        await self._set_status_label("Finished" if self.stop.cause is StopCause.FINISHED else "Failed")

    async def _set_status_label(self, status: str) -> None:
        patch = {"metadata": {"labels": {pods.STATUS: status}}}
        await self._retry_unreachable(lambda: self._client.patch(PODS, self._name, patch, self._args.namespace))

    async def _create_service(self) -> None:
        """Create the service by which workers find this master; they send the token to whatever has its name."""
        service = pods.service(self._args, self._master_pod)
        while True:
            try:
                await self._client.create(SERVICES, service)
            except StatusError as error:
                if error.status != 409:
                    raise
            existing = await self._client.find(SERVICES, self._name, self._args.namespace)
            if existing is not None and pods.is_controlled_by(existing, self._master_pod):
                return
            log_line(f"service belongs to another owner, waiting until it is deleted: service={self._name}")
            await asyncio.sleep(RECONCILE_EVERY)

    async def _retry_unreachable(self, call: Callable[[], Any]) -> Any:
        """Repeat a call until the API server is reachable."""
        while True:
            try:
                return await call()
            except Unreachable as error:
                log_line(f"API server not reachable: error={error}")
                await asyncio.sleep(1)

    async def _run_coordinator(self) -> None:
        """Restart the coordinator whenever it dies, as `LocalRunner` does."""
        command = [sys.executable, "-m", "torchyard.elastic", "coordinator", "--with-parent", str(os.getpid())]
        command += ["--dir", str(self._state), "--host", ALL_ADDRESSES, "--port", str(self._args.port)]
        while self.stop is None:
            process = await asyncio.create_subprocess_exec(*command)
            try:
                code = await process.wait()
            except asyncio.CancelledError:
                process.terminate()
                await process.wait()
                raise
            if code == COORDINATOR_REFUSED:
                self._stop(wire.Stop(StopCause.FAILED, "the coordinator could not start; see its message above"))
            await asyncio.sleep(0.05)

    async def _run_agent(self) -> None:
        """Act as the agent of all workers: keep a connection to the coordinator."""
        while True:
            try:
                reader, self._writer = await asyncio.open_connection("127.0.0.1", self._args.port)
                node = pods.worker_prefix(self._args.job_name)
                alive = tuple(name for name, pod in self._pods_seen.items() if not has_ended(pod))
                authentication = wire.Authentication(self._record["job"], self._record["token"], node)
                hello = wire.Hello(node, "agent", node=node, members=alive)
                self._writer.write(wire.encode_opening(authentication, hello))
                while True:
                    await self._handle(await wire.receive(reader))
            except (OSError, asyncio.IncompleteReadError, ElasticError):  # also a message that is not valid
                await asyncio.sleep(0.1)
            finally:
                if self._writer is not None:
                    self._writer.close()
                self._writer = None

    def _send(self, message: wire.Message) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(wire.encode(message))

    async def _handle(self, message: wire.Message) -> None:
        match message:
            case wire.TargetWorkers(workers=target):
                self._target = target
            case wire.KillHungWorker(worker=name, message=text):
                log_line(f"worker hung: pod={name} message={text}")
                await self._delete(name)
            case wire.Stop():
                self._stop(message)
            case wire.Rejection(reason=reason):
                self._stop(wire.Stop(StopCause.FAILED, reason))
        self._wake.set()

    def _stop(self, stop: wire.Stop) -> None:
        self.stop = self.stop or stop
        self._wake.set()

    async def _delete(self, name: str) -> None:
        try:
            await self._client.delete(PODS, name, self._args.namespace, grace=1)
        except StatusError as error:
            if error.status != 404:
                raise

    async def _watch(self) -> None:
        while True:
            with suppress(YardError):
                listing = await self._client.list(PODS, self._args.namespace, labels=pods.selector(self._args.job_name))
                changes = self._client.watch(
                    PODS,
                    self._args.namespace,
                    since=listing.resource_version,
                    labels=pods.selector(self._args.job_name),
                )
                async for _ in changes:
                    self._wake.set()
            await asyncio.sleep(0.5)

    async def _pods(self) -> list[Object]:
        """Return the worker pods of this master. A pod of another owner may have the same labels."""
        query = f"{pods.selector(self._args.job_name)},{pods.TYPE}={pods.WORKER}"
        listing = await self._client.list(PODS, self._args.namespace, labels=query)
        return [pod for pod in listing.items if pods.is_controlled_by(pod, self._master_pod)]

    async def _reconcile_workers(self) -> None:
        try:
            worker_pods = await self._pods()
            self._master_pod = await self._client.get(PODS, self._name, self._args.namespace)
        except Unreachable as error:
            log_line(f"API server not reachable: error={error}")
            return
        failures = self._report_outcomes(worker_pods)
        if failures:
            step = await asyncio.to_thread(self._applied_step)
            self._own_errors = failures + (self._own_errors if step == self._errors_at_step else 0)
            self._errors_at_step = step
        await self._apply_scale_annotation()
        plan = worker_plan.plan(self._target, worker_pods, own_errors=self._own_errors, relaunch=self._relaunches)
        if plan.failed:
            self._send(wire.AgentEvent("StartFailed", plan.failed))
            self._stop(wire.Stop(StopCause.FAILED, plan.failed))
            return
        for _ in range(plan.create if self.stop is None else 0):
            await self._create(worker_pods)

    @property
    def _relaunches(self) -> bool:
        parameters = (part.partition("=") for part in self._args.aux_params.split(";"))
        return not any(
            name.strip() == "disable_relaunch" and value.strip().lower() == "true" for name, _, value in parameters
        )

    def _report_outcomes(self, worker_pods: list[Object]) -> int:
        """Report every pod that has ended once to the coordinator; return how many failed by their own fault."""
        current = {pod["metadata"]["name"]: pod for pod in worker_pods}
        deleted = set(self._pods_seen) - set(current)
        terminated = {name: pod for name, pod in current.items() if has_ended(pod)}
        outcomes = {name: worker_plan.PodOutcome(False, f"{name} was deleted") for name in deleted}
        outcomes |= {name: worker_plan.pod_outcome(pod) for name, pod in terminated.items()}
        new_outcomes = {name: outcome for name, outcome in outcomes.items() if name not in self._outcomes_reported}
        for name, outcome in new_outcomes.items():
            self._outcomes_reported.add(name)
            log_line(f"worker pod ended: pod={name} message={outcome.message}")
            self._send(wire.AgentEvent("WorkerExited", outcome.message))
        self._pods_seen = current
        return sum(outcome.own_error for outcome in new_outcomes.values())

    def _applied_step(self) -> int | None:
        """Return the last applied step, or None while the coordinator does not respond."""
        try:
            return int(request_coordinator(self._state, "/status")["step"])
        except ElasticError:
            return None

    async def _apply_scale_annotation(self) -> None:
        """Pass the annotation of `elasticdl scale` on the master pod to the coordinator, which decides."""
        value = (self._master_pod["metadata"].get("annotations") or {}).get(pods.WORKERS_ANNOTATION, "")
        if value == self._seen_target:
            return
        self._seen_target = value
        if not value:
            return
        if not value.isascii() or not value.isdigit() or len(value) > 9:
            log_line(f"scale refused: workers={value[:40]!r} error=not a number")
            return
        try:
            await asyncio.to_thread(request_coordinator, self._state, "/scale", {"workers": int(value)})
        except ElasticError as error:
            log_line(f"scale refused: workers={value} error={error}")

    async def _create(self, worker_pods: list[Object]) -> None:
        """Create a worker pod. As in ElasticDL, an index is not used twice, so a name identifies one process."""
        index = max([self._record["next_worker"], *(pods.index_of(pod) + 1 for pod in worker_pods)])
        pod = pods.worker(self._args, index, owner=self._master_pod, variables=self._variables(index), start=BOOTSTRAP)
        name = pod["metadata"]["name"]
        try:
            await self._client.create(PODS, pod)
        except StatusError as error:
            if error.status != 409:
                log_line(f"worker pod not created: pod={name} error={error}")
                await asyncio.sleep(1)
                return
        self._record["next_worker"] = index + 1
        write_record(self._state, self._record)
        log_line(f"worker pod created: pod={name}")
        self._send(wire.AgentEvent("WorkerStarted", f"{name} was created"))

    def _variables(self, index: int) -> dict[str, str]:
        args = self._args
        address = f"{self._name}.{args.namespace}.svc:{args.port}"
        variables: dict[str, str] = {}
        if args.populate_env_names:
            variables = {key: value for key, value in os.environ.items() if re.fullmatch(args.populate_env_names, key)}
        return variables | {
            "TORCHYARD_ELASTIC_COORDINATOR": address,
            "TORCHYARD_ELASTIC_JOB": self._record["job"],
            "TORCHYARD_ELASTIC_TOKEN": self._record["token"],
            "TORCHYARD_ELASTIC_WORKER": f"{pods.worker_prefix(args.job_name)}-{index}",
            "TORCHYARD_ELASTIC_NODE": pods.worker_prefix(args.job_name),
            "WORKER_NUM": str(args.num_workers),
            "WORKER_ID": str(index),
        }
