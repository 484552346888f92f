"""Pods with every possible status."""

from __future__ import annotations

from typing import Any

from tests.api.table_cases.base import LONG_AGO, condition

from torchyard.api.objects import Object


def waiting(reason: str = "") -> Object:
    return {"waiting": {"reason": reason} if reason else {}}


def running() -> Object:
    return {"running": {"startedAt": LONG_AGO}}


def ended(code: int = 0, reason: str = "", signal: int = 0) -> Object:
    terminated: Object = {"exitCode": code, "finishedAt": LONG_AGO}
    return {
        "terminated": {**terminated, **({"reason": reason} if reason else {}), **({"signal": signal} if signal else {})}
    }


def container(name: str, state: Object, **more: Any) -> Object:
    status: Object = {"name": name, "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": state}
    return {**status, **more}


def pod(name: str, *, init: list[Object] | None = None, spec: Object | None = None, **more: Any) -> Object:
    body: Object = {"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}], **(spec or {})}
    if init is not None:
        body["initContainers"] = [{"image": "i", **container} for container in init]
    return {"metadata": {"name": name}, "spec": body, **more}


def status(phase: str = "Running", **more: Any) -> Object:
    return {"phase": phase, **more}


INIT = [{"name": "i1"}, {"name": "i2"}]
SIDECAR = [{"name": "s", "restartPolicy": "Always"}, {"name": "i1"}]

PODS = [
    pod("new"),
    pod("gated", status=status("Pending", conditions=[condition("PodScheduled", "False", "SchedulingGated")])),
    pod("evicted", status=status("Failed", reason="Evicted")),
    pod("succeeded", status=status("Succeeded", containerStatuses=[container("a", ended(reason="Completed"))])),
    pod("errored", status=status("Failed", containerStatuses=[container("a", ended(1, "Error"))])),
    pod("signalled", status=status("Failed", containerStatuses=[container("a", ended(137, signal=9))])),
    pod("exited", status=status("Failed", containerStatuses=[container("a", ended(3)), container("b", ended(4))])),
    pod("creating", status=status("Pending", containerStatuses=[container("a", waiting("ContainerCreating"))])),
    pod(
        "running",
        spec={"nodeName": "node-1", "readinessGates": [{"conditionType": "x/y"}, {"conditionType": "x/z"}]},
        status=status(
            podIP="10.0.0.7",
            podIPs=[{"ip": "10.0.0.7"}],
            conditions=[condition("Ready"), condition("x/y")],
            containerStatuses=[container("a", running(), ready=True), container("b", running(), ready=True)],
        ),
    ),
    pod(
        "crashing",
        status=status(
            containerStatuses=[
                container("a", waiting("CrashLoopBackOff"), restartCount=3, lastState=ended(1, "Error")),
                container("b", running(), ready=True, restartCount=1),
            ]
        ),
    ),
    pod(
        "half-done",
        status=status(
            conditions=[condition("Ready", "False")],
            containerStatuses=[container("a", ended(reason="Completed")), container("b", running(), ready=True)],
        ),
    ),
    pod(
        "done-but-ready",
        status=status(
            conditions=[condition("Ready")],
            containerStatuses=[container("a", ended(reason="Completed")), container("b", running(), ready=True)],
        ),
    ),
    pod("restarted", status=status(containerStatuses=[container("a", running(), ready=True, restartCount=2)])),
    pod("init-new", init=INIT, status=status("Pending")),
    pod("init-running", init=INIT, status=status("Pending", initContainerStatuses=[container("i1", running())])),
    pod(
        "init-second",
        init=INIT,
        status=status(
            "Pending",
            initContainerStatuses=[
                container("i1", ended(reason="Completed"), restartCount=1),
                container("i2", waiting("PodInitializing")),
            ],
        ),
    ),
    pod(
        "init-error",
        init=INIT,
        status=status("Pending", initContainerStatuses=[container("i1", ended(2, "Error"), restartCount=4)]),
    ),
    pod(
        "init-signal", init=INIT, status=status("Pending", initContainerStatuses=[container("i1", ended(9, signal=9))])
    ),
    pod("init-exit", init=INIT, status=status("Pending", initContainerStatuses=[container("i1", ended(7))])),
    pod(
        "init-crashing",
        init=INIT,
        status=status(
            "Pending",
            initContainerStatuses=[
                container("i1", waiting("CrashLoopBackOff"), restartCount=5, lastState=ended(1, "Error"))
            ],
        ),
    ),
    pod(
        "init-done",
        init=INIT,
        status=status(
            "Pending",
            conditions=[condition("Initialized")],
            initContainerStatuses=[container("i1", ended(reason="Completed"), restartCount=2)],
            containerStatuses=[container("a", waiting("PodInitializing"))],
        ),
    ),
    pod(
        "sidecar",
        init=SIDECAR,
        status=status(
            initContainerStatuses=[
                container("s", running(), started=True, ready=True, restartCount=2, lastState=ended(1)),
                container("i1", ended(reason="Completed"), restartCount=3),
            ],
            containerStatuses=[container("a", running(), ready=True), container("b", running())],
        ),
    ),
    pod(
        "sidecar-starting",
        init=SIDECAR,
        status=status("Pending", initContainerStatuses=[container("s", running(), started=False)]),
    ),
    pod("lost", terminating=True, status=status(reason="NodeLost")),
    pod("terminating", terminating=True, status=status(containerStatuses=[container("a", running(), ready=True)])),
    pod("terminated", terminating=True, status=status("Succeeded")),
    pod("nominated", status=status("Pending", nominatedNodeName="node-9")),
]
