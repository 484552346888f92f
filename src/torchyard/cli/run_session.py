"""Applies the objects of `yard run` and follows the jobs among them."""

from __future__ import annotations

import asyncio
import signal
from typing import NamedTuple

import yaml

from torchyard.api import manifests
from torchyard.api.errors import StatusError, YardError
from torchyard.api.gvr import CONFIG_MAPS
from torchyard.api.objects import Object
from torchyard.cli.apply import Plan, apply, check, delete_replaced, dry_run, locate, plan
from torchyard.cli.confirm import confirm
from torchyard.cli.follow import Follower
from torchyard.cli.notify import notify
from torchyard.cli.options import say
from torchyard.cli.output import Record, show_records
from torchyard.cli.run_options import DryRunMode, OnInterrupt, SessionOptions
from torchyard.cli.screen import Screen, create_screen
from torchyard.core.run.failure import exit_code
from torchyard.core.run.script_job import is_archive, without_noise
from torchyard.core.run.state import RUNNABLE, RunState
from torchyard.kube.client import Client
from torchyard.kube.completion import complete
from torchyard.kube.connect import open_client
from torchyard.kube.job_lookup import JobHandle, qualified_name
from torchyard.kube.kubeconfig import Connection
from torchyard.kube.spelling import suggest_field, suggest_object

INTERRUPTED = 130  # the exit code that shells report after Ctrl-C


async def run_objects(connection: Connection, objects: list[Object], text: str, options: SessionOptions) -> int:
    """Carry out `yard run` and return its exit code. `text` is the manifest as written, for hints about it."""
    async with open_client(connection, "yard-run") as client:
        if options.confirm and not await _is_confirmed(client, connection, objects, text, options):
            say("nothing was changed")
            return 1
        screen = create_screen(for_programs=options.for_programs)
        session = RunSession(client, screen, options, options.namespace or connection.namespace)
        work = asyncio.ensure_future(session.run(objects))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, work.cancel)
        try:
            return await work
        except asyncio.CancelledError:
            await session.handle_interrupt()
            return INTERRUPTED
        except StatusError as error:
            raise await _explained(client, error, objects, text, session.namespace) from error
        finally:
            screen.close()


async def _is_confirmed(
    client: Client, connection: Connection, objects: list[Object], text: str, options: SessionOptions
) -> bool:
    namespace = options.namespace or connection.namespace
    try:
        return await confirm(client, objects, namespace, replace=options.replace)
    except StatusError as error:
        raise await _explained(client, error, objects, text, namespace) from error


async def _explained(client: Client, error: StatusError, objects: list[Object], text: str, namespace: str) -> YardError:
    """The error with its likely cause: a line that lacks indentation, or a misspelled field or name."""
    shifts = manifests.find_misplaced_lines(text)
    if error.status in (400, 422) and shifts:
        message = f"{error.message}\nlikely cause: {shifts[0]}"
        return YardError(message, hint=manifests.indentation_hint(shifts), code=error.code)
    hint = await suggest_field(client, error.message, objects)
    hint = hint or await suggest_object(client, error.message, namespace)
    return YardError(error.message, hint=hint, code=error.code) if hint else error


def _is_record_of(record: Record, job: JobHandle) -> bool:
    return (record["name"], record.get("namespace")) == (job.qualified_name, job.namespace)


class _Archives(NamedTuple):
    """The files of scripts that a run has written, and those among them that did not exist before."""

    applied: list[Object]
    created: list[Object]


class RunSession:
    """One run of `yard run`."""

    def __init__(self, client: Client, screen: Screen, options: SessionOptions, namespace: str) -> None:
        self._client, self._screen, self._options, self.namespace = client, screen, options, namespace
        self._jobs: list[JobHandle] = []
        self._records: list[Record] = []

    async def run(self, objects: list[Object]) -> int:
        code = await self._run(objects)
        if self._options.for_programs and not self._options.has_results:
            show_records(self._records, self._options.output, columns={}, empty="")
        return code

    async def _run(self, objects: list[Object]) -> int:
        if self._options.diff:
            return await self._show_diff(objects)
        if self._options.dry_run is DryRunMode.server:
            return await self._show_dry_run(objects)
        await self._apply(objects)
        if not self._jobs:
            self._screen.note("the manifest has no job to wait for: no PyTorchJob, TrainJob, JobSet, Job or Pod")
            return 0
        if self._options.detach:
            for job in self._jobs:
                self._screen.note(f"follow it with: yard logs -f{self._namespace_option(job)} {job.name}")
            return 0
        return await self._follow()

    async def _show_diff(self, objects: list[Object]) -> int:
        for obj in objects:
            planned = await self._plan(obj, replace=True)
            named = {**obj, "metadata": {"name": obj["metadata"].get("generateName", ""), **obj["metadata"]}}
            name = qualified_name(planned.target.gvr, named)
            self._records.append({"name": name, "action": planned.action, "diff": planned.diff})
            self._screen.note(f"{name} would be {planned.action}")
            if planned.diff:
                self._screen.note(planned.diff)
        return 0

    async def _show_dry_run(self, objects: list[Object]) -> int:
        for obj in objects:
            target = await locate(self._client, obj, self.namespace)
            checked = without_noise(await dry_run(self._client, target))
            self._records.append({"name": qualified_name(target.gvr, checked), "object": checked})
            if not self._options.for_programs:
                self._screen.note("---\n" + yaml.safe_dump(checked, sort_keys=False).rstrip())
        return 0

    async def _apply(self, objects: list[Object]) -> None:
        # a job that is not valid or cannot be changed stops the run before anything is written or deleted
        plans = [await self._plan(obj, replace=self._options.replace) for obj in objects if obj["kind"] in RUNNABLE]
        for planned in plans:
            await check(self._client, planned)
        for planned in plans:
            await delete_replaced(self._client, planned)
        archives = _Archives([], [])
        try:
            for obj in objects:
                planned = await self._plan(obj, replace=self._options.replace)
                await complete(self._write(planned, archives))
        except BaseException:
            await self._settle(archives)
            raise
        if self._jobs:
            await complete(self._settle(archives))

    async def _write(self, planned: Plan, archives: _Archives) -> None:
        gvr, applied = await apply(self._client, planned)
        action = "unchanged" if planned.action == "unchanged" else "applied"
        self._screen.note(f"{qualified_name(gvr, applied)} {action}")
        if applied["kind"] in RUNNABLE:
            job = JobHandle(gvr, applied)
            self._jobs.append(job)
            self._records.append({"name": job.qualified_name, "namespace": job.namespace, "action": action})
        elif is_archive(applied):
            archives.applied.append(applied)
            if planned.action == "created":
                archives.created.append(applied)

    async def _settle(self, archives: _Archives) -> None:
        """Let the job own its files. Without a job, delete those of this run: nothing would ever delete them."""
        if self._jobs:
            for archive in archives.applied:
                await self._set_owner(archive, self._jobs[0])
            return
        for archive in archives.created:
            metadata = archive["metadata"]
            await self._client.delete(CONFIG_MAPS, metadata["name"], metadata["namespace"], uid=metadata["uid"])

    async def _plan(self, obj: Object, *, replace: bool) -> Plan:
        return await plan(self._client, await locate(self._client, obj, self.namespace), replace=replace)

    async def _set_owner(self, archive: Object, job: JobHandle) -> None:
        """Let the files of a script be deleted with its job."""
        patch = {"metadata": {"ownerReferences": [job.owner_reference]}}
        await self._client.patch(CONFIG_MAPS, archive["metadata"]["name"], patch, job.namespace)

    async def _follow(self) -> int:
        several = len(self._jobs) > 1
        followers = [
            Follower(self._client, job.gvr, job.object, self._screen, among_others=several) for job in self._jobs
        ]
        results = await asyncio.gather(*(follower.run() for follower in followers))
        code = 0
        for job, (result, failure) in zip(self._jobs, results, strict=True):
            message = f": {result.message}" if result.message else ""
            self._screen.note(f"{job.qualified_name} {result.state}{message}")
            if failure is not None:
                self._screen.note(f"first to fail: {failure} at {failure.at}")
            own_code = exit_code(result, failure)
            self._add_result(job, result, own_code)
            await self._notify(job, result, own_code)
            code = code or own_code
        return code

    def _add_result(self, job: JobHandle, result: RunState, code: int) -> None:
        record = next(record for record in self._records if _is_record_of(record, job))
        record |= {"state": result.state, "exitCode": code, "message": result.message}

    async def _notify(self, job: JobHandle, result: RunState, code: int) -> None:
        if self._options.notify:
            problem = await notify(self._options.notify, job.name, result.state, code, result.message)
            if problem:
                self._screen.note(f"cannot notify {self._options.notify}: {problem}")

    async def handle_interrupt(self) -> None:
        """Leave the jobs running or delete them, as the user chose."""
        for job in self._jobs:
            if self._options.on_interrupt is OnInterrupt.delete:
                await self._client.delete(job.gvr, job.name, job.namespace, uid=job.object["metadata"]["uid"])
                self._screen.note(f"{job.qualified_name} deleted")
            else:
                option = self._namespace_option(job)
                self._screen.note(f"{job.qualified_name} keeps running")
                self._screen.note(
                    f"follow it with: yard logs -f{option} {job.name}; delete it with: yard delete{option} {job.name}"
                )

    @staticmethod
    def _namespace_option(job: JobHandle) -> str:
        return "" if job.namespace == "default" else f" -n {job.namespace}"
