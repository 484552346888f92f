"""The master of a job: keeps its coordinator and its worker pods. Everything it must not forget is in the ledger.

Two processes of it may die at any time: the coordinator, which this one starts again, and this one, which `serve`
starts again. Workers train on meanwhile.
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
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torchyard.api.errors import StatusError, YardError
from torchyard.api.gvr import PODS, SERVICES
from torchyard.api.objects import Object
from torchyard.elastic import sidecar, wire
from torchyard.elastic.bundle import BOOTSTRAP
from torchyard.elastic.cli import ask
from torchyard.elastic.coordinator.membership import WorldLimits
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.run import RECORD, read_record, write_record
from torchyard.elasticdl import pods, worker_plan
from torchyard.kube.client import Client, Unreachable

LOOK_EVERY = 1.0
"""Pods are also watched; this is for what a watch may miss."""
EVERYWHERE = "0.0.0.0"  # noqa: S104  # workers are in other pods; the token keeps others out


def say(text: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


class Master:
    def __init__(self, given: argparse.Namespace, client: Client, state: Path) -> None:
        self._given = given
        self._client = client
        self._state = state
        self._record = self._prepare()
        self._writer: asyncio.StreamWriter | None = None
        self._wanted = 0
        self._seen_wanted = ""
        self._own_errors = 0
        self._errors_at = -1
        self._ended: set[str] = set()
        self._known: dict[str, Object] = {}
        self._wake = asyncio.Event()
        self.stop: wire.Stop | None = None

    def _prepare(self) -> Object:
        given = self._given
        held = read_record(self._state) if (self._state / RECORD).exists() else {}
        limits = WorldLimits(least=1, most=max(given.num_workers, 1), want=given.num_workers)
        record = {
            "job": f"{given.namespace}/{given.job_name}",
            "token": held.get("token") or secrets.token_urlsafe(24),
            "address": f"127.0.0.1:{given.port}",
            "workers": given.num_workers,
            "next_worker": held.get("next_worker", 0),
            "lease": sidecar.LEASE,
            "hang_after": 300.0,
            "limits": asdict(limits),
            "runner": os.getpid(),
        }
        write_record(self._state, record)
        return record

    @property
    def _name(self) -> str:
        return pods.master_name(self._given.job_name)

    async def run(self) -> int:
        namespace = self._given.namespace
        self._own = await self._client.get(PODS, self._name, namespace)
        await self._make_service()
        await self._mark("Running")
        tasks = [asyncio.create_task(work()) for work in (self._coordinate, self._listen, self._watch)]
        try:
            while self.stop is None:
                await self._look()
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY):
                        await self._wake.wait()
                self._wake.clear()
            say(f"{self.stop.why}: {self.stop.message}")
            await self._part()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return 0 if self.stop.why == "finished" else 1

    async def _part(self) -> None:
        """Workers have heard the same news: let them end by themselves, then say how it went."""
        deadline = time.monotonic() + pods.GRACE
        while any(not worker_plan.is_over(pod) for pod in await self._pods()) and time.monotonic() < deadline:
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY):
                    await self._wake.wait()
        assert self.stop is not None
        await self._mark("Finished" if self.stop.why == "finished" else "Failed")

    async def _mark(self, status: str) -> None:
        patch = {"metadata": {"labels": {pods.STATUS: status}}}
        await self._patiently(lambda: self._client.patch(PODS, self._name, patch, self._given.namespace))

    async def _make_service(self) -> None:
        try:
            await self._client.create(SERVICES, pods.service(self._given, self._own))
        except StatusError as error:
            if error.status != 409:
                raise

    async def _patiently(self, call: Callable[[], Any]) -> Any:
        """The API server may be away for a while: nothing is lost by waiting."""
        while True:
            try:
                return await call()
            except Unreachable as error:
                say(str(error))
                await asyncio.sleep(1)

    async def _coordinate(self) -> None:
        """Keep a coordinator running, as the runner of one machine does."""
        command = [sys.executable, "-m", "torchyard.elastic", "coordinator", "--with-parent", "--dir", str(self._state)]
        command += ["--host", EVERYWHERE, "--port", str(self._given.port)]
        while self.stop is None:
            process = await asyncio.create_subprocess_exec(*command)
            try:
                code = await process.wait()
            except asyncio.CancelledError:
                process.terminate()
                await process.wait()
                raise
            if code == 2:
                self._end(wire.Stop("failed", "the coordinator could not start; its message is above"))
            await asyncio.sleep(0.05)

    async def _listen(self) -> None:
        """Be the coordinator's agent for all workers of the job."""
        while True:
            try:
                reader, self._writer = await asyncio.open_connection("127.0.0.1", self._given.port)
                node = pods.worker_prefix(self._given.job_name)
                alive = tuple(pod["metadata"]["name"] for pod in self._known.values() if not worker_plan.is_over(pod))
                self._send(
                    wire.Hello(self._record["job"], self._record["token"], node, "agent", node=node, members=alive)
                )
                while True:
                    await self._hear(await wire.receive(reader))
            except (OSError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.1)
            finally:
                if self._writer is not None:
                    self._writer.close()
                self._writer = None

    def _send(self, message: wire.Message) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(wire.encode(message))

    async def _hear(self, message: wire.Message) -> None:
        match message:
            case wire.TargetWorkers(workers=wanted):
                self._wanted = wanted
            case wire.KillHungWorker(worker=name, message=text):
                say(text)
                await self._delete(name)
            case wire.Stop():
                self._end(message)
            case wire.Rejection(reason=reason):
                self._end(wire.Stop("failed", reason))
        self._wake.set()

    def _end(self, stop: wire.Stop) -> None:
        self.stop = self.stop or stop
        self._wake.set()

    async def _delete(self, name: str) -> None:
        try:
            await self._client.delete(PODS, name, self._given.namespace, grace=1)
        except StatusError as error:
            if error.status != 404:
                raise

    async def _watch(self) -> None:
        while True:
            with suppress(YardError):
                listing = await self._client.list(
                    PODS, self._given.namespace, labels=pods.selector(self._given.job_name)
                )
                changes = self._client.watch(
                    PODS,
                    self._given.namespace,
                    since=listing.resource_version,
                    labels=pods.selector(self._given.job_name),
                )
                async for _ in changes:
                    self._wake.set()
            await asyncio.sleep(0.5)

    async def _pods(self) -> list[Object]:
        query = f"{pods.selector(self._given.job_name)},{pods.TYPE}={pods.WORKER}"
        return (await self._client.list(PODS, self._given.namespace, labels=query)).items

    async def _look(self) -> None:
        try:
            found = await self._pods()
            self._own = await self._client.get(PODS, self._name, self._given.namespace)
        except Unreachable as error:
            say(str(error))
            return
        errs = self._notice(found)
        if errs:
            step = await asyncio.to_thread(self._step)
            self._own_errors = errs + (self._own_errors if step == self._errors_at else 0)
            self._errors_at = step
        await self._scale_as_asked()
        plan = worker_plan.plan(self._wanted, found, own_errors=self._own_errors, relaunch=self._relaunches)
        if plan.failed:
            self._send(wire.AgentEvent("StartFailed", plan.failed))
            self._end(wire.Stop("failed", plan.failed))
            return
        for _ in range(plan.create if self.stop is None else 0):
            await self._create(found)

    @property
    def _relaunches(self) -> bool:
        told = (part.partition("=") for part in self._given.aux_params.split(";"))
        return not any(
            name.strip() == "disable_relaunch" and value.strip().lower() == "true" for name, _, value in told
        )

    def _notice(self, found: list[Object]) -> int:
        """Tell the coordinator, once, of every pod that has ended; how many did so by their own fault."""
        now = {pod["metadata"]["name"]: pod for pod in found}
        endings = {name: worker_plan.PodOutcome(False, f"{name} was deleted") for name in set(self._known) - set(now)}
        endings |= {name: worker_plan.ending(pod) for name, pod in now.items() if worker_plan.is_over(pod)}
        news = {name: end for name, end in endings.items() if name not in self._ended}
        for name, end in news.items():
            self._ended.add(name)
            say(end.words)
            self._send(wire.AgentEvent("WorkerExited", end.words))
        self._known = now
        return sum(end.own_error for end in news.values())

    def _step(self) -> int:
        try:
            return int(ask(self._state, "/status")["step"])
        except ElasticError:
            return -1

    async def _scale_as_asked(self) -> None:
        """`elasticdl scale` leaves its wish on the master pod; the coordinator decides and remembers."""
        asked = (self._own["metadata"].get("annotations") or {}).get(pods.WANTED, "")
        if asked == self._seen_wanted:
            return
        self._seen_wanted = asked
        if asked.isdigit():
            try:
                await asyncio.to_thread(ask, self._state, "/scale", {"workers": int(asked)})
            except ElasticError as error:
                say(f"{pods.WANTED}={asked}: {error}")

    async def _create(self, found: list[Object]) -> None:
        """Numbers are never used twice, as in ElasticDL: a worker's name means one process."""
        taken = [int(pod["metadata"]["labels"][pods.INDEX]) for pod in found]
        index = max([self._record["next_worker"], *(number + 1 for number in taken)])
        pod = pods.worker(self._given, index, owner=self._own, variables=self._variables(index), start=BOOTSTRAP)
        try:
            await self._client.create(PODS, pod)
        except StatusError as error:
            if error.status != 409:
                say(f"{pod['metadata']['name']} cannot be made: {error}")
                await asyncio.sleep(1)
                return
        self._record["next_worker"] = index + 1
        write_record(self._state, self._record)
        say(f"made {pod['metadata']['name']}")
        self._send(wire.AgentEvent("WorkerStarted", f"{pod['metadata']['name']} was made"))

    def _variables(self, index: int) -> dict[str, str]:
        given = self._given
        address = f"{self._name}.{given.namespace}.svc:{given.port}"
        own: dict[str, str] = {}
        if given.populate_env_names:
            own = {key: value for key, value in os.environ.items() if re.fullmatch(given.populate_env_names, key)}
        return own | {
            "TORCHYARD_ELASTIC_COORDINATOR": address,
            "TORCHYARD_ELASTIC_JOB": self._record["job"],
            "TORCHYARD_ELASTIC_TOKEN": self._record["token"],
            "TORCHYARD_ELASTIC_WORKER": f"{pods.worker_prefix(given.job_name)}-{index}",
            "TORCHYARD_ELASTIC_NODE": pods.worker_prefix(given.job_name),
            "WORKER_NUM": str(given.num_workers),
            "WORKER_ID": str(index),
        }
