"""The same TrainJobs on two planes, one of them with upstream's managers, end with the same children and statuses.

Real pods of both run. Where `shared/peers` has JobSet and Trainer for this machine; full effort only.
"""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from tests.kueue.peers import START
from tests.node.support import need_network
from tests.support.effort import FULL
from tests.support.http import Answer
from tests.support.kubernetes import Server, assets
from tests.support.waiting import eventually
from tests.support.yard import Yard

from torchyard.api.trainjob import names

Object = dict[str, Any]
SPACE = "namespaces/default"
TRAINJOBS = f"/apis/{names.API_VERSION}/{SPACE}/trainjobs"
RUNTIMES = f"/apis/{names.API_VERSION}/clustertrainingruntimes"
JOBSETS = f"/apis/jobset.x-k8s.io/v1alpha2/{SPACE}/jobsets"
JOBS = f"/apis/batch/v1/{SPACE}/jobs"
PATIENCE = 120.0
PEERS = [START.parent / "bin" / platform.machine() / f"{name}.xz" for name in ("jobset-0.12.0", "trainer-2.3.0")]

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not FULL, reason="runs every case on two planes: TORCHYARD_TESTS=full"),
    pytest.mark.skipif(
        assets() is None or not all(path.exists() for path in PEERS), reason="shared/peers has no JobSet and Trainer"
    ),
]


@dataclass(frozen=True)
class Step:
    """A change, made as soon as the job has these counts of its replicated job `node`."""

    counts: Object
    change: Callable[[Server, str], Answer | None]


@dataclass(frozen=True)
class Case:
    """`end`: the condition of the job at its end, or the counts of its replicated job `node`."""

    node: str  # the shell command of the nodes
    end: str | Object
    spec: Object
    steps: tuple[Step, ...] = ()
    jobs: tuple[Object, ...] = ()  # before the nodes
    jobset: Object | None = None  # of the runtime
    node_job: Object | None = None


def patch(spec: Object) -> Callable[[Server, str], Answer]:
    return lambda server, name: server.admin.patch(f"{TRAINJOBS}/{name}", {"spec": spec})


def delete_jobset(server: Server, name: str) -> None:
    """Until another one has taken its place."""
    path = f"{JOBSETS}/{name}"
    uid = server.admin.get(path).json["metadata"]["uid"]
    server.admin.delete(path)

    def is_another() -> bool:
        answer = server.admin.get(path)
        return answer.status == 200 and answer.json["metadata"]["uid"] != uid

    eventually(is_another, f"another JobSet {name}", PATIENCE)


def delete_runtime(server: Server, name: str) -> Answer:
    return server.admin.delete(f"{RUNTIMES}/{name}")


def replicated_job(name: str, command: str, **more: Any) -> Object:
    container = {"name": "node", "image": "busybox", "command": ["sh", "-c", command]}
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    labels = {"labels": {names.ANCESTOR: names.TRAINER}} if name == "node" else {}
    template = {"metadata": labels, "spec": {"backoffLimit": 0, "template": {"spec": pod}}}
    return {"name": name, "template": template, **more}


def _patches() -> list[Object]:
    pod = {"spec": {"template": {"spec": {"nodeSelector": {"no": "where"}}}}}
    jobs = [{"name": "node", "template": pod}]
    return [{"manager": "a.b/c", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}]


END, RUN, LONG = "exit 0", "sleep 2", "sleep 600"
ACTIVE, SUSPENDED = {"active": 1}, {"suspended": 1}
AFTER = [{"name": "before", "status": "Complete"}]
SUSPEND, RESUME = patch({"suspend": True}), patch({"suspend": False})
PATCH = patch({"runtimePatches": _patches()})
CASES = {
    "ends": Case(RUN, "Complete", {}),
    "three-nodes": Case(RUN, "Complete", {"trainer": {"numNodes": 3}}),
    "fails": Case("exit 3", "Failed", {}),
    "restarts": Case("exit 3", "Failed", {}, jobset={"failurePolicy": {"maxRestarts": 2}}),
    "after-another": Case(RUN, "Complete", {}, jobs=(replicated_job("before", END),), node_job={"dependsOn": AFTER}),
    "after-a-failure": Case(
        RUN, "Failed", {}, jobs=(replicated_job("before", "exit 1"),), node_job={"dependsOn": AFTER}
    ),
    "others-run": Case(
        RUN,
        "Complete",
        {},
        jobs=(replicated_job("server", LONG),),
        jobset={"successPolicy": {"operator": "Any", "targetReplicatedJobs": ["node"]}},
    ),
    "suspended": Case(RUN, "Suspended", {"suspend": True}),
    "resumed": Case(RUN, "Complete", {"suspend": True}, (Step(SUSPENDED, RESUME),)),
    "stopped": Case(LONG, "Suspended", {}, (Step(ACTIVE, SUSPEND),)),
    "stopped-resumed": Case(LONG, ACTIVE, {}, (Step(ACTIVE, SUSPEND), Step(SUSPENDED, RESUME))),
    "patched": Case(LONG, "Suspended", {"suspend": True}, (Step(SUSPENDED, PATCH),)),
    "patched-resumed": Case(LONG, ACTIVE, {"suspend": True}, (Step(SUSPENDED, PATCH), Step(SUSPENDED, RESUME))),
    "patched-running": Case(LONG, ACTIVE, {}, (Step(ACTIVE, PATCH),)),
    "resized-running": Case(LONG, ACTIVE, {}, (Step(ACTIVE, patch({"trainer": {"numNodes": 2}})),)),
    "jobset-deleted": Case(LONG, ACTIVE, {}, (Step(ACTIVE, delete_jobset),)),
    "runtime-deleted": Case(LONG, ACTIVE, {}, (Step(ACTIVE, delete_runtime),)),
    "too-late": Case(LONG, "Failed", {"activeDeadlineSeconds": 5}),
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """Ours, and one on which upstream's managers run."""
    need_network()
    directory = tmp_path_factory.mktemp("planes")
    with ExitStack() as stack:
        ours = stack.enter_context(Yard(directory / "ours", node=True))
        theirs = stack.enter_context(Yard(directory / "theirs", node=True, controllers="*,-jobset,-trainjob"))
        for peer in ("jobset", "trainer"):
            state = directory / peer
            subprocess.run([START, peer, "--kubeconfig", str(theirs.kubeconfig), "--dir", str(state)], check=True)
            stack.callback(partial(subprocess.run, [START, "stop", str(state)], check=True))
        yield ours, theirs


def runtime(name: str, case: Case) -> Object:
    jobs = [*case.jobs, replicated_job("node", case.node, **(case.node_job or {}))]
    spec = {
        "mlPolicy": {"numNodes": 1, "torch": {}},
        "template": {"spec": {**(case.jobset or {}), "replicatedJobs": jobs}},
    }
    metadata = {"name": name, "labels": {names.FRAMEWORK: "torch"}}
    return {"apiVersion": names.API_VERSION, "kind": names.CLUSTER_RUNTIME_KIND, "metadata": metadata, "spec": spec}


def live(server: Server, name: str, case: Case) -> list[str]:
    """Create the job and change it; returns the refusals."""
    created = server.admin.post(RUNTIMES, runtime(name, case))
    assert created.status == 201, created
    spec = {"runtimeRef": {"name": name}, "trainer": {}, **case.spec}
    job = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": name}, "spec": spec}
    created = server.admin.post(TRAINJOBS, job)
    assert created.status == 201, created
    refusals = []
    for step in case.steps:
        eventually(partial(_is_at, server, name, step.counts), f"{name} {step.counts}", PATIENCE)
        answer = step.change(server, name)
        if answer is not None and answer.status >= 400:
            refusals.append(answer.message.rpartition("denied the request: ")[2].rpartition("is invalid: ")[2])
    eventually(partial(_is_at, server, name, case.end), f"{name} {case.end}", PATIENCE)
    return refusals


def _is_at(server: Server, name: str, end: str | Object) -> bool:
    status = server.admin.get(f"{TRAINJOBS}/{name}").json.get("status") or {}
    if isinstance(end, str):
        return any(each["type"] == end and each["status"] == "True" for each in status.get("conditions") or ())
    return any(each["name"] == "node" and end.items() <= each.items() for each in status.get("jobsStatus") or ())


def observed(server: Server, name: str) -> Object:
    """The job, its JobSet and its Jobs, without what differs on purpose (docs/compatibility.md)."""
    job = server.admin.get(f"{TRAINJOBS}/{name}").json
    status = job.get("status") or {}
    ended = {
        each["type"]: [each["status"], each["reason"], each["message"].partition("; first failed node")[0]]
        for each in status.get("conditions") or ()
        if each["status"] == "True"  # ours has no condition `Suspended` after a resumption
    }
    late = (ended.get("Failed") or ["", ""])[1] == "DeadlineExceeded"
    seen: Object = {
        "conditions": ended,
        "counts": None if late else sorted(map(str, map(sorted, map(dict.items, status.get("jobsStatus") or ())))),
        "spec": {field: job["spec"].get(field) for field in ("suspend", "trainer", "runtimeRef")},
        "jobs": {},
    }
    jobset = server.admin.get(f"{JOBSETS}/{name}")
    if jobset.status == 200:
        held = jobset.json
        of_jobset = held.get("status") or {}
        seen["jobset"] = {
            "conditions": {
                each["type"]: [each["status"], each["reason"], each["message"]]
                for each in of_jobset.get("conditions") or ()
            },
            "suspend": held["spec"].get("suspend"),
            "restarts": of_jobset.get("restarts"),
        }
    for each in server.admin.get(JOBS).json["items"]:
        if each["metadata"]["labels"].get("jobset.sigs.k8s.io/jobset-name") == name:
            counts = {field: (each.get("status") or {}).get(field) or 0 for field in ("active", "succeeded", "failed")}
            spec, pod = each["spec"], each["spec"]["template"]["spec"]
            seen["jobs"][each["metadata"]["name"]] = [
                counts, spec.get("suspend"), spec.get("parallelism"), pod.get("nodeSelector"),
            ]  # fmt: skip
    return seen


@pytest.mark.parametrize("name", CASES)
def test_a_job_ends_as_with_upstreams_managers(servers: tuple[Server, Server], name: str) -> None:
    with ThreadPoolExecutor() as pool:
        refusals = list(pool.map(lambda server: live(server, name, CASES[name]), servers))
    assert refusals[0] == refusals[1]
    ours, theirs = servers
    try:
        # The counts of pods that are left over are still going.
        eventually(lambda: observed(ours, name) == observed(theirs, name), f"the same end of {name}", PATIENCE)
    except AssertionError:
        assert observed(ours, name) == observed(theirs, name)
        raise
    finally:
        for server in servers:
            server.admin.delete(f"{TRAINJOBS}/{name}")
