"""Scripts and functions through both forms of the SDK, and the page of the SDK as written."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import re
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from tests.sdk.test_jobs import training
from tests.support.kubernetes import ROOT
from tests.support.yard import Yard as Plane

from torchyard.api.errors import StatusError, YardError
from torchyard.api.gvr import JOBS, PODS
from torchyard.api.objects import Object
from torchyard.core.run.record import ReplicaRecord, build_record
from torchyard.core.run.state import run_state
from torchyard.core.run.summary import JobSummary
from torchyard.jobs import past_jobs
from torchyard.jobs.function_source import SOURCE, function_arguments, function_files
from torchyard.kube.job_lookup import JobHandle
from torchyard.sdk import AsyncJob, AsyncYard, Job, JobFailed, Yard, async_job
from torchyard.sdk.metric_follower import MetricFollower
from torchyard.sdk.views import JobSnapshot
from torchyard.yard.history import HistoryStore

TRAIN = 'import sys\nprint(f"step 1/1 loss={float(sys.argv[2])}", flush=True)\n'
NOTEBOOK = """
import math
import os.path as paths
from fractions import Fraction
SCALE = 2
class Model:
    factor = Fraction(1, 2)
def helper(value):
    return SCALE * float(Model.factor) * math.floor(value)
def fit(value, label="7"):
    helper(value)
    print(f"helped={helper(value)} label={label!r} join={paths.join('a', 'b')}")
    return [helper(value), label]
"""


def run_python(plane: Plane, folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program as a user does: a file of the folder, with the plane as kubectl's cluster."""
    (folder / "program.py").write_text(program)
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_the_page_of_the_sdk_runs_as_written(plane: Plane, tmp_path: Path) -> None:
    config = yaml.safe_load(plane.kubeconfig.read_text())
    config["contexts"].append({"name": "prod", "context": config["contexts"][0]["context"]})
    plane.kubeconfig.write_text(yaml.safe_dump(config))
    api = plane.server().admin
    assert api.post("/api/v1/namespaces", {"metadata": {"name": "team-a"}}).status == 201
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(training("paged", "echo rank $RANK; exit 4")))
    (tmp_path / "train.py").write_text(TRAIN)
    page = (ROOT / "docs/sdk.md").read_text()
    blocks = re.findall(r"<!-- run -->\n```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 3
    done = run_python(plane, tmp_path, "\n".join(blocks))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "rank 0"
    assert "first to fail: paged-" in lines[1] and "exit code 4" in lines[1]
    assert "master-0 rank 0 step 1/3 loss=0.300" in lines  # a job ends with its master, whatever its worker prints
    assert "{'loss': 0.09999999999999999}" in lines or "{'loss': 0.1}" in lines
    assert any(re.fullmatch(r"\{'loss': 0\.1\} 100%", line) for line in lines)
    assert "[{'loss': 0.3}]" in lines
    assert lines[-1] == "['Succeeded', 'Succeeded']"


def test_every_documented_call_exists_in_both_forms() -> None:
    page = (ROOT / "docs/sdk.md").read_text()
    calls = re.findall(r"^\| (.*?) \|", page[page.index("## Calls") :], re.MULTILINE)
    named = {name for cell in calls for name in re.findall(r"`(\w+)\(", cell)}
    assert {"train", "all_logs", "show", "history"} <= named
    for form in ((Yard, Job), (AsyncYard, AsyncJob)):
        assert named == {name for owner in form for name in vars(owner) if not name.startswith("_")} - {
            "close", "namespace", "object"
        }  # fmt: skip
    for sync, asynchronous in ((Yard, AsyncYard), (Job, AsyncJob)):
        for name in named & set(vars(sync)):
            parameters = [list(inspect.signature(getattr(form, name)).parameters) for form in (sync, asynchronous)]
            assert parameters[0] == parameters[1], name


async def test_a_slow_history_does_not_block_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    ran = threading.Event()

    def recorded(*_: Any) -> list[Any]:
        loop.call_soon_threadsafe(ran.set)  # only a loop that is not blocked by this function runs it
        assert ran.wait(30)
        return []

    async def none(*_: Any) -> list[Any]:
        return []

    monkeypatch.setattr(past_jobs, "_recorded", recorded)
    monkeypatch.setattr(past_jobs, "list_jobs", none)
    assert await past_jobs.list_runs(cast(Any, None), cast(Any, None), "default") == []


async def test_a_failure_names_the_pod_that_its_job_has_deleted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    metadata = {"name": "j", "uid": "u", "namespace": "a", "creationTimestamp": "2026-01-01T00:00:00Z"}
    status = {"conditions": [{"type": "Failed", "status": "True"}]}
    job: Object = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {}, "status": status}
    end = {"exitCode": 3, "reason": "Error", "finishedAt": "2026-01-01T00:00:01Z"}
    failed = {
        "metadata": {"name": "j-x", "namespace": "a"},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"containerStatuses": [{"name": "main", "state": {"terminated": end}}]},
    }
    store = HistoryStore(tmp_path)

    async def no_pods(*_: object) -> list[Object]:
        return []

    monkeypatch.setattr(past_jobs, "plane_history", lambda _cluster: store)
    monkeypatch.setattr(async_job, "pods_of_job", no_pods)
    handle = AsyncJob(cast(Any, None), JobHandle(JOBS, job), cast(Any, None))
    waiting = asyncio.ensure_future(handle._first_failure())
    await asyncio.sleep(0)  # the plane writes the record when the job has failed already
    store.write([build_record(job, [failed], datetime(2026, 1, 1, tzinfo=UTC))], [])
    first = await waiting
    assert first is not None
    assert (first.pod, first.exit_code, first.reason) == ("j-x", 3, "Error")
    assert "first to fail: j-x, exit code 3 (Error)" in str(JobFailed("Job a/j", run_state(job), first))


async def test_follow_begins_with_the_tail_of_a_running_replica() -> None:
    class OnePod:
        async def find(self, *_: object) -> Object:
            return {**pod, "status": {"phase": "Running"}}

        async def logs(self, *_: object, **options: object) -> AsyncGenerator[bytes, None]:
            yield f"{options['follow']} {options['tail_lines']}\n".encode()

    pod = {"kind": "Pod", "metadata": {"name": "a", "namespace": "b"}}
    job = AsyncJob(cast(Any, OnePod()), JobHandle(PODS, pod), cast(Any, None))
    assert [line async for line in job.logs(container="main", follow=True, tail=10)] == ["True 10"]


async def test_the_metrics_of_a_shown_job_are_followed_once_for_each_start() -> None:
    opened: list[asyncio.Queue[float | None]] = []

    async def rows() -> AsyncGenerator[dict[str, float], None]:
        if not opened:
            opened.append(asyncio.Queue())
            raise StatusError(400, "BadRequest", "the container is waiting to start")
        opened.append(asyncio.Queue())
        while (value := await opened[-1].get()) is not None:
            yield {"loss": value}

    def pod(restarts: int) -> Object:
        return {"metadata": {"uid": "a"}, "status": {"containerStatuses": [{"restartCount": restarts}]}}

    async def until(condition: Callable[[], bool], restarts: int) -> None:
        async with asyncio.timeout(30):
            while not condition():
                follower.observe(pod(restarts))
                await asyncio.sleep(0)

    follower = MetricFollower(rows)
    await until(lambda: len(opened) == 2, 0)  # a container that had not started is tried again
    for value in (0.5, 0.25, None):
        opened[1].put_nowait(value)
    await until(lambda: len(follower.rows) == 2 and follower.is_idle, 0)
    for _ in range(10):
        await until(lambda: True, 0)
    assert len(opened) == 2 and follower.rows == [{"loss": 0.5}, {"loss": 0.25}]
    await until(lambda: len(opened) == 3, 1)
    opened[2].put_nowait(1.0)
    await until(lambda: follower.rows == [{"loss": 1.0}], 1)
    await follower.close()


def test_a_function_of_a_program_brings_what_it_uses(plane: Plane, tmp_path: Path) -> None:
    program = NOTEBOOK + (
        "from torchyard.sdk import Yard\n"
        "with Yard() as yard:\n"
        "    job = yard.train(fit, args=(2.5,))\n"
        "    print(job.result(seconds=120), list(job.logs()))\n"
        "    print(yard._repr_html_(), job._repr_html_())\n"
    )
    done = run_python(plane, tmp_path, program)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("[2.0, '7'] [\"helped=2.0 label='7' join=a/b\"]")
    assert "<svg" in done.stdout and "Succeeded" in done.stdout


def test_a_function_that_fails_or_returns_no_json(plane: Plane, tmp_path: Path) -> None:
    program = """
def large(): return "x" * 5000
def odd(): return object()
def broken(): raise ValueError("of its own")
from torchyard.sdk import Yard
with Yard() as yard:
    for job in [yard.train(function) for function in (large, odd, broken)]:
        try:
            job.result(seconds=120)
        except Exception as error:
            print(type(error).__name__, error.code, error)
    print(yard.job(job.name).why()[-1], job.progress(), job.metrics())
"""
    done = run_python(plane, tmp_path, program)
    assert done.returncode == 0, done.stdout + done.stderr
    large, odd, broken, why = done.stdout.splitlines()
    assert "NoResult" in large and "more than the 4096 that Kubernetes keeps" in large
    assert "NoResult" in odd and "not JSON" in odd
    assert broken.startswith("JobFailed JobFailed") and "exit code 1" in broken
    assert "yard logs broken-" in why and why.endswith("None {}")


LINK = "http://localhost:6006/?a=1&b=2"


async def test_the_asynchronous_form(plane: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    async with AsyncYard(kubeconfig=plane.kubeconfig) as yard:
        job = await yard.run("train.py", "--lr", "0.5", name="by-async", env={"A": "b", "TENSORBOARD_URL": LINK})
        assert [line.text async for line in job.all_logs()] == ["step 1/1 loss=0.5"]
        assert (await job.wait(seconds=120)).succeeded
        assert [row async for row in job.metric_rows("0")] == [{"loss": 0.5}]
        view = await job.view()
        assert [replica["exitCode"] for replica in view.replicas] == [0] and view.curves() == {"loss": [0.5]}
        assert "by-async Succeeded" in job._repr_html_()
        assert await job.links() == [("TensorBoard", LINK)]
        assert 'href="http://localhost:6006/?a=1&amp;b=2"' in job._repr_html_()
        assert any(event.reason == "SuccessfulCreatePod" for event in await job.events())
        assert (await job.summary()).state == "Succeeded"
        with pytest.raises(YardError, match=r"pytorchjob\.kubeflow\.org/by-async already exists"):
            await yard.run("train.py", name="by-async")
        archives = plane.server().admin.get("/api/v1/namespaces/default/configmaps/by-async-workspace").json
        assert [owner["name"] for owner in archives["metadata"]["ownerReferences"]] == ["by-async"]
        with pytest.raises(YardError, match="neither a Python script"):
            await yard.run("job.yaml")
        with pytest.raises(YardError, match="nodes=0"):
            await yard.run("train.py", nodes=0)
        await job.delete()
        bad = await yard.submit(training("bad-async", "exit 3"))
        with pytest.raises(JobFailed):
            await bad.wait(seconds=120)
        await bad.delete()


def test_a_job_is_shown_in_a_terminal_until_it_ends(plane: Plane, capsys: pytest.CaptureFixture[str]) -> None:
    with Yard(kubeconfig=plane.kubeconfig) as yard:
        job = yard.submit(training("shown", "echo loss=0.5"))
        view = job.show()
        assert view.summary.state == "Succeeded" and job.outcome().done
        assert "PyTorchJob default/shown Succeeded" in capsys.readouterr().out


def notebook_functions(extra: str = "") -> dict[str, Any]:
    """The functions of a notebook: of `__main__`, with their sources where `inspect` finds those of cells."""
    import linecache

    source = NOTEBOOK + extra
    linecache.cache["<cell>"] = (len(source), None, source.splitlines(keepends=True), "<cell>")
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, "<cell>", "exec"), names)
    return names


def test_the_source_of_a_function_has_its_imports_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect, "getsource", _source_of_cell)
    files = function_files(notebook_functions()["fit"])
    source = files[f"{SOURCE}.py"]
    for earlier, later in (("import math", "def helper"), ("SCALE = 2", "def helper"), ("def helper", "def fit")):
        assert source.index(earlier) < source.index(later)
    assert "import posixpath as paths" in source and "from fractions import Fraction as Fraction" in source


def _source_of_cell(value: Any) -> str:
    match = re.search(rf"^(?:def|class) {value.__name__}\b.*?(?=^\S|\Z)", _CELL, re.DOTALL | re.MULTILINE)
    assert match is not None
    return match[0]


_CELL = NOTEBOOK + "LOCK = object()\ndef locked():\n    return LOCK\n"


_CELL_OF_ALIASES = """
import concurrent.futures
import xml.etree.ElementTree as tree
from enum import IntEnum
import functools
import xml
def twice(function):
    @functools.wraps(function)
    def call():
        function()
        return function()
    return call
@functools.cache
def cached(value):
    return value
BEST, WORST, NONE = float("inf"), float("-inf"), float("nan")
Number = int
def helper(value):
    return Number(value)
alias = helper
square = lambda value: value * value
@twice
def fit():
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        numbers = [pool.submit(alias, "3").result(), square(2), cached(5)]
    constants = (BEST > 1, WORST < 1, NONE != NONE)
    return numbers, *constants, xml.etree.ElementTree.fromstring("<a/>").tag, tree.XML("<b/>").tag
"""


def test_aliases_submodules_and_infinities_reach_the_pod(tmp_path: Path) -> None:
    program = _CELL_OF_ALIASES + (
        "from torchyard.jobs.function_source import function_files\n"
        "import pathlib\n"
        "for name, text in function_files(fit).items():\n"
        "    pathlib.Path('sent', name).write_text(text)\n"
    )
    (tmp_path / "sent").mkdir()
    (tmp_path / "program.py").write_text(program)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "program.py"], cwd=tmp_path, env=environment, check=True, timeout=60)
    done = subprocess.run(
        [sys.executable, "-c", f"import {SOURCE} as sent; print(sent.fit())"],
        cwd=tmp_path / "sent",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "([3, 4, 5], True, True, True, 'a', 'b')\n", done.stderr


def test_a_value_whose_repr_is_not_its_source_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Level(IntEnum):
        low = 1

    names: dict[str, Any] = {"__name__": "__main__", "LEVEL": Level.low}
    monkeypatch.setattr(inspect, "getsource", lambda _: "def fit():\n    return LEVEL\n")
    exec("def fit():\n    return LEVEL\n", names)
    with pytest.raises(YardError, match="LEVEL cannot be sent to the pods: it is a Level"):
        function_files(names["fit"])


def test_a_view_shows_messages_with_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    replica: ReplicaRecord = {
        "name": "worker-0", "pod": "a-worker-0", "rank": 0, "phase": "Failed", "exitCode": 1, "reason": "[red]",
        "started": "", "finished": "", "gpus": 0,
    }  # fmt: skip
    summary = JobSummary("default", "a", "PyTorchJob", "Failed", 0, 1, "", timedelta(), "closed [/x] by [bold]")
    Console(width=200).print(JobSnapshot(summary, (replica,), ({"a[/b]": 1.0},)))
    shown = capsys.readouterr().out
    assert "closed [/x] by [bold]" in shown and "[red]" in shown and "a[/b]=1" in shown


def test_what_cannot_be_sent_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def local() -> None: ...

    def generator() -> Iterator[int]:
        yield 1

    monkeypatch.setattr(inspect, "getsource", _source_of_cell)
    locked = notebook_functions("LOCK = object()\ndef locked():\n    return LOCK\n")["locked"]
    refused: list[tuple[Callable[..., Any], str]] = [
        (lambda: None, "not a function with a name"),
        (print, "not a function with a name"),
        (functools.partial(print), "not a function with a name"),
        (cast(Any, "train.py"), "not a function with a name"),
        (local, "defined in another function"),
        (generator, "it is a generator, of which a call runs nothing"),
        (locked, "LOCK cannot be sent to the pods: it is a object"),
    ]
    for function, reason in refused:
        with pytest.raises(YardError, match=reason) as error:
            function_files(function)
        assert error.value.code == "BadFunction"


def test_arguments_are_options_that_keep_their_types() -> None:
    def fit(lr: float, name: str = "", **rest: Any) -> None: ...

    arguments = function_arguments(fit, (0.5, "a b"), {"count": 3, "digits": "3", "list": [1], "none": None})
    assert arguments == ("--lr=0.5", "--name=a b", "--count=3", '--digits="3"', "--list=[1]", "--none=null")
    with pytest.raises(TypeError, match="missing a required argument: 'lr'"):
        function_arguments(fit, (), {})
    with pytest.raises(YardError, match="lr is not JSON"):
        function_arguments(fit, (object(),), {})
