"""What works beside a pod's worker goes on after an error, such as that no open files are left."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio
from tests.node.conftest import RunningNode, running_node
from tests.node.support import need_sandbox

from torchyard.api.gvr import PODS
from torchyard.node.pod import background
from torchyard.node.pod.handlers import HandlerResult
from torchyard.node.pod.probes import ProbeWorker
from torchyard.node.resources import disk_usage
from torchyard.node.shim.client import ShimClient, ShimTimeout

pytestmark = pytest.mark.asyncio(loop_scope="module")
NO_FILES = OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningNode]:
    need_sandbox()
    async with running_node(tmp_path_factory.mktemp("errors") / "state") as running:
        assert running.plane.agent
        context = running.plane.agent.context
        context.settings = replace(context.settings, storage_check_seconds=0.2)
        yield running


class FailsAtFirst:
    """A function whose first calls raise."""

    def __init__(self, function: Callable[..., Awaitable[Any]], error: Exception, times: int = 1) -> None:
        self._function, self._error, self.left = function, error, times

    async def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self.left:
            self.left -= 1
            raise self._error
        return await self._function(*arguments, **named)


async def test_work_is_started_again_with_growing_delays_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[float] = []

    async def sleep(seconds: float) -> None:
        delays.append(seconds)

    async def work() -> None:
        pass

    monkeypatch.setattr(asyncio, "sleep", sleep)
    failing = FailsAtFirst(work, ValueError("unexpected"), 10)
    await background.retry_after_errors(failing, name="work", pod="default/p")
    assert failing.left == 0
    assert delays == [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60]


async def test_storage_limits_hold_after_a_measurement_that_failed(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = FailsAtFirst(disk_usage.measure, NO_FILES)
    monkeypatch.setattr(disk_usage, "measure", failing)
    resources = {"limits": {"ephemeral-storage": "1Mi"}}
    await node.script("full", "head -c 3000000 /dev/zero > /tmp/file; sleep 600", container={"resources": resources})
    pod = await node.phase("full", "Failed")
    assert pod["status"]["reason"] == "Evicted"
    assert not failing.left


async def test_the_end_of_a_container_is_noticed_after_the_events_of_its_shim_were_lost(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A worker looks at its pod once a minute without them."""
    subscribe = ShimClient.channel
    left = 2

    async def fails_at_first(shim: ShimClient) -> Any:
        nonlocal left
        if left:
            left -= 1
            raise NO_FILES
        return await subscribe(shim)

    monkeypatch.setattr(ShimClient, "channel", fails_at_first)
    mount = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
    volumes = [{"name": "shared", "hostPath": {"path": str(tmp_path)}}]
    script = "until test -e /shared/go; do sleep 0.05; done; exit 3"
    await node.script("ends", script, container=mount, volumes=volumes)
    await node.phase("ends", "Running")
    (tmp_path / "go").touch()
    await node.phase("ends", "Failed", seconds=30)
    assert left == 0


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        ({"exec": {"command": ["sh", "-c", "echo no; exit 4"]}}, "PreStopHook failed: no\n"),
        ({"httpGet": {"port": "web"}}, "PreStopHook failed: "),
    ],
    ids=["a command that fails", "a port that does not exist"],
)
async def test_a_pod_whose_stop_hook_fails_gets_an_event_and_ends(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch, hook: dict[str, Any], message: str
) -> None:
    failing = FailsAtFirst(ShimClient.signal, NO_FILES)

    async def fails_at_first(*arguments: Any) -> None:
        await failing(*arguments)

    monkeypatch.setattr(ShimClient, "signal", fails_at_first)
    name = "hook-" + next(iter(hook)).lower()
    container = {"lifecycle": {"preStop": hook}}
    await node.script(name, "trap 'exit 0' TERM; sleep 600 & wait", container=container)
    await node.phase(name, "Running")
    await node.client.delete(PODS, name, "default", grace=20)
    await node.gone(name)
    assert (await node.messages(name))["FailedPreStopHook"].startswith(message)
    assert not failing.left


@pytest.mark.parametrize("error", [NO_FILES, ShimTimeout("the shim did not reply")], ids=["no files", "a stopped shim"])
async def test_a_probe_that_the_node_cannot_run_kills_no_container(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def passes(*_: object, **__: object) -> HandlerResult:
        return HandlerResult(True, "")

    failing = FailsAtFirst(passes, error, 5)
    monkeypatch.setattr("torchyard.node.pod.probes.run_handler", failing)
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 0.001, "failureThreshold": 1}
    changed, reports = asyncio.Event(), list[str]()
    worker = ProbeWorker(
        cast(ShimClient, None),
        {"name": "main", "livenessProbe": probe, "readinessProbe": probe},
        host="",
        changed=changed.set,
        report=lambda _reason, message: reports.append(message),
        kill=reports.append,
    )
    await asyncio.wait_for(changed.wait(), 30)
    assert (worker.ready, failing.left, reports) == (True, 0, [])
    await worker.close()
