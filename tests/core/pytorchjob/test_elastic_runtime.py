"""Jobs whose workers train with the elastic runtime: a worker that leaves or comes too late."""

from __future__ import annotations

import pytest
from tests.support.pytorchjobs import NOW, at, job, pod

from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names
from torchyard.api.times import to_rfc3339
from torchyard.core.pytorchjob.decide import decide
from torchyard.core.pytorchjob.replicas import make_pod
from torchyard.core.pytorchjob.view import PyTorchJobSettings, PyTorchJobView

W = names.WORKER
ENDED = 60.0


def elastic_job(backend: str = "torchyard", end: str = "Succeeded") -> Object:
    condition = {
        "type": end,
        "status": "True",
        "reason": f"PyTorchJob{end}",
        "lastTransitionTime": to_rfc3339(at(ENDED)),
    }
    status = {"startTime": to_rfc3339(NOW), "completionTime": to_rfc3339(at(ENDED)), "conditions": [condition]}
    policy = {"minReplicas": 1, "maxReplicas": 4, "rdzvBackend": backend}
    return job(master=None, worker=2, policy="OnFailure", status=status, elasticPolicy=policy)


def started(second: float | None, *, phase: str = "Running") -> Object:
    """A worker whose container was started this many seconds after the job, or waits."""
    worker = pod(W, 1, phase)
    state = {"waiting": {"reason": "CrashLoopBackOff"}}
    if second is not None:
        state = {"running": {"startedAt": to_rfc3339(at(second))}}
    worker["status"]["containerStatuses"][0]["state"] = state
    return worker


def removed(manifest: Object, worker: Object) -> set[str]:
    view = PyTorchJobView.of(manifest, at(100), pods=[pod(W, 0, "Succeeded", code=0), worker], services=[])
    return {deletion.object["metadata"]["name"] for deletion in decide(view, PyTorchJobSettings()).delete}


def test_a_worker_that_leaves_early_does_not_exit_with_0() -> None:
    """One worker that succeeds makes an elastic job succeed, and a drained node would end the training."""
    view = PyTorchJobView.of(elastic_job(), NOW, pods=[], services=[])
    for index in (0, 1):
        container = make_pod(view, (W, index), PyTorchJobSettings())["spec"]["containers"][0]
        assert {"name": "TORCHYARD_ELASTIC_RETIRED_CODE", "value": "143"} in container["env"]


@pytest.mark.parametrize(
    ("worker", "is_late"),
    [
        (started(ENDED + 5), True),  # its container has come back, or was late
        (started(None), True),
        (started(None, phase="Pending"), True),
        (started(ENDED - 5), False),  # it may still save its model
        (pod(W, 1, "Succeeded", code=0), False),
        (pod(W, 1, "Failed", code=1), False),
    ],
)
def test_a_worker_that_starts_after_the_end_is_removed(worker: Object, is_late: bool) -> None:
    """The coordinator has ended with the training: the worker would wait for ever, and keep its GPU."""
    assert removed(elastic_job(), worker) == ({"train-worker-1"} if is_late else set())


def test_other_jobs_keep_such_workers() -> None:
    assert removed(elastic_job("c10d"), started(None)) == set()
    assert removed(elastic_job(end="Failed"), started(None)) == set()
