"""Which containers start, restart and stop, and the resulting status: the kubelet's rules, case by case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from torchyard.core.pod.decide import PodActions, backoff, decide
from torchyard.core.pod.status import pod_status
from torchyard.core.pod.view import Attempt, ContainerView, PodView, Waiting

NOW = 1_000_000.0


def pod(*containers: str, policy: str = "Always", **more: Any) -> dict[str, Any]:
    spec = {"restartPolicy": policy, "containers": [{"name": name, "image": "busybox"} for name in containers], **more}
    metadata: dict[str, Any] = {"name": "p", "namespace": "default", "uid": "u-1", "generation": 1}
    return {"metadata": metadata, "spec": spec}


def running(number: int = 0, *, since: float = NOW - 5) -> Attempt:
    return Attempt(number, f"id{number}", "running", since, started=since)


def exited(code: int, number: int = 0, *, at: float = NOW - 1, ran: float = 1.0) -> Attempt:
    return Attempt(number, f"id{number}", "exited", at - ran, started=at - ran, finished=at, exit_code=code)


def view(**containers: Attempt | list[Attempt] | ContainerView) -> PodView:
    seen = {}
    for name, container in containers.items():
        if isinstance(container, ContainerView):
            seen[name] = container
        else:
            seen[name] = ContainerView(attempts=tuple(container if isinstance(container, list) else [container]))
    return PodView(containers=seen, sandbox=True, ip="10.244.0.5", host_ip="10.0.0.1", started=NOW - 9)


INIT: dict[str, Any] = {"initContainers": [{"name": "one"}, {"name": "two"}]}
SIDECAR: dict[str, Any] = {"initContainers": [{"name": "side", "restartPolicy": "Always"}]}


@pytest.mark.parametrize(
    ("manifest", "seen", "plan", "phase"),
    [
        pytest.param(pod("a", "b"), view(), PodActions(start=(("a", 0), ("b", 0))), "Pending", id="all start at once"),
        pytest.param(pod("a"), view(a=running()), PodActions(), "Running", id="a running pod is left alone"),
        pytest.param(
            pod("a"), view(a=exited(0)), PodActions(start=(("a", 1),)), "Running", id="Always restarts a success"
        ),
        pytest.param(
            pod("a", policy="OnFailure"),
            view(a=exited(1)),
            PodActions(start=(("a", 1),)),
            "Running",
            id="OnFailure, failed",
        ),
        pytest.param(
            pod("a", policy="OnFailure"),
            view(a=exited(0)),
            PodActions(finished=True),
            "Succeeded",
            id="OnFailure, done",
        ),
        pytest.param(
            pod("a", policy="Never"), view(a=exited(1)), PodActions(finished=True), "Failed", id="Never, failed"
        ),
        pytest.param(
            pod("a", policy="Never"), view(a=exited(0)), PodActions(finished=True), "Succeeded", id="Never, done"
        ),
        pytest.param(
            pod("a", "b", policy="Never"), view(a=exited(1), b=running()), PodActions(), "Running", id="one still runs"
        ),
        pytest.param(
            pod("a"),
            view(a=[exited(1, 0, at=NOW - 20), exited(1, 1, at=NOW - 2)]),
            PodActions(wake_at=NOW + 8),
            "Running",
            id="the second restart waits ten seconds",
        ),
        pytest.param(
            pod("a", **INIT), view(), PodActions(start=(("one", 0),)), "Pending", id="the first init container first"
        ),
        pytest.param(
            pod("a", **INIT), view(one=exited(0)), PodActions(start=(("two", 0),)), "Pending", id="then the second"
        ),
        pytest.param(pod("a", **INIT), view(one=running()), PodActions(), "Pending", id="and nothing beside it"),
        pytest.param(
            pod("a", ephemeralContainers=[{"name": "look", "image": "busybox"}], **INIT),
            view(one=running()),
            PodActions(start=(("look", 0),)),
            "Pending",
            id="but whoever is to look into it",
        ),
        pytest.param(
            pod("a", ephemeralContainers=[{"name": "look", "image": "busybox"}]),
            view(a=running(), look=exited(1)),
            PodActions(),
            "Running",
            id="who looked is not started again",
        ),
        pytest.param(
            pod("a", **INIT),
            view(one=exited(0), two=exited(0)),
            PodActions(start=(("a", 0),)),
            "Pending",
            id="then the pod",
        ),
        pytest.param(
            pod("a", policy="Never", **INIT),
            view(one=exited(2)),
            PodActions(finished=True),
            "Failed",
            id="failed init, Never",
        ),
        pytest.param(
            pod("a", **INIT),
            view(one=exited(2)),
            PodActions(start=(("one", 1),)),
            "Pending",
            id="failed init is retried",
        ),
        pytest.param(
            pod("a", **SIDECAR), view(), PodActions(start=(("side", 0),)), "Pending", id="a sidecar goes first"
        ),
        pytest.param(
            pod("a", **SIDECAR),
            view(side=running()),
            PodActions(start=(("a", 0),)),
            "Pending",
            id="the pod beside its sidecar",
        ),
        pytest.param(
            pod("a", **SIDECAR),
            view(side=ContainerView(attempts=(running(),), started=False)),
            PodActions(),
            "Pending",
            id="a sidecar must have started",
        ),
        pytest.param(
            pod("a", policy="Never", **SIDECAR),
            view(side=running(), a=exited(0)),
            PodActions(stop=("side",)),
            "Running",
            id="a sidecar is stopped after the pod's work",
        ),
        pytest.param(
            pod("a", policy="Never", **SIDECAR),
            view(side=exited(1), a=running()),
            PodActions(start=(("side", 1),)),
            "Running",
            id="a sidecar restarts whatever the pod's policy",
        ),
    ],
)
def test_containers_to_start_and_stop(manifest: dict[str, Any], seen: PodView, plan: PodActions, phase: str) -> None:
    assert decide(manifest, seen, now=NOW) == plan
    assert pod_status(manifest, seen, now=NOW)["phase"] == phase


def test_a_deleted_pod_stops_its_containers_before_its_sidecars() -> None:
    manifest = pod("a", "b", **SIDECAR)
    manifest["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert decide(manifest, view(a=running(), b=running(), side=running()), now=NOW) == PodActions(stop=("a", "b"))
    assert decide(manifest, view(a=exited(143), b=exited(0), side=running()), now=NOW) == PodActions(stop=("side",))
    assert decide(manifest, view(a=exited(143), b=exited(0), side=exited(0)), now=NOW) == PodActions(finished=True)


@pytest.mark.parametrize(
    ("manifest", "seen", "phase"),
    [
        (pod("a"), view(a=running()), "Running"),
        (pod("a"), view(a=exited(0)), "Succeeded"),
        (pod("a"), view(a=exited(137)), "Failed"),
        (pod("a", **SIDECAR), view(a=exited(0), side=running()), "Running"),
        (pod("a", **INIT), view(one=exited(0)), "Failed"),
    ],
)
def test_the_phase_of_a_deleted_pod_follows_its_exit_codes_whatever_its_restart_policy(
    manifest: dict[str, Any], seen: PodView, phase: str
) -> None:
    manifest["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert pod_status(manifest, seen, now=NOW)["phase"] == phase


def test_nothing_starts_before_the_sandbox_is_ready() -> None:
    assert decide(pod("a"), PodView(), now=NOW) == PodActions()


@pytest.mark.parametrize(
    ("restarts", "seconds"), [(0, 0), (1, 10), (2, 20), (3, 40), (4, 80), (5, 160), (6, 300), (9, 300)]
)
def test_the_back_off_doubles_up_to_five_minutes(restarts: int, seconds: float) -> None:
    assert backoff(tuple(exited(1, number) for number in range(restarts + 1))) == seconds


def test_a_long_run_resets_the_back_off() -> None:
    attempts = [exited(1, number) for number in range(5)] + [exited(1, 5, ran=601)]
    assert backoff(tuple(attempts)) == 10


def test_a_delayed_restart_shows_crash_loop_back_off() -> None:
    seen = view(a=[exited(1, 0, at=NOW - 20), exited(1, 1, at=NOW - 2)])
    status = pod_status(pod("a"), seen, now=NOW)["containerStatuses"][0]
    assert status["state"]["waiting"] == {
        "reason": "CrashLoopBackOff",
        "message": "back-off 10s restarting failed container=a pod=p_default(u-1)",
    }
    assert status["lastState"]["terminated"]["exitCode"] == 1
    assert (status["restartCount"], status["ready"], status["started"]) == (1, False, False)


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {condition["type"]: (condition["status"], condition.get("reason", "")) for condition in status["conditions"]}


@pytest.mark.parametrize(
    ("manifest", "seen", "wanted"),
    [
        pytest.param(
            pod("a"),
            view(a=running()),
            {"Initialized": ("True", ""), "Ready": ("True", ""), "ContainersReady": ("True", "")},
            id="ready",
        ),
        pytest.param(
            pod("a"),
            view(a=ContainerView(attempts=(running(),), ready=False)),
            {"Ready": ("False", "ContainersNotReady"), "ContainersReady": ("False", "ContainersNotReady")},
            id="a readiness probe fails",
        ),
        pytest.param(
            pod("a", **INIT),
            view(one=running()),
            {"Initialized": ("False", "ContainersNotInitialized"), "Ready": ("False", "ContainersNotReady")},
            id="initializing",
        ),
        pytest.param(
            pod("a", policy="Never"),
            view(a=exited(0)),
            {
                "PodReadyToStartContainers": ("False", ""),
                "Initialized": ("True", "PodCompleted"),
                "Ready": ("False", "PodCompleted"),
            },
            id="done",
        ),
        pytest.param(pod("a", policy="Never"), view(a=exited(1)), {"Ready": ("False", "PodFailed")}, id="failed"),
    ],
)
def test_pod_conditions_follow_the_containers(
    manifest: dict[str, Any], seen: PodView, wanted: dict[str, tuple[str, str]]
) -> None:
    by_type = conditions(pod_status(manifest, seen, now=NOW))
    assert list(by_type) == ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
    assert wanted.items() <= by_type.items()


def test_a_transition_time_changes_only_with_the_condition() -> None:
    manifest = pod("a")
    manifest["status"] = pod_status(manifest, view(a=running()), now=NOW)
    later = pod_status(manifest, view(a=running()), now=NOW + 60)
    assert later["conditions"] == manifest["status"]["conditions"]
    gone = pod_status(manifest, view(a=exited(1)), now=NOW + 60)
    moved = {
        item["type"]
        for item, old in zip(gone["conditions"], manifest["status"]["conditions"], strict=True)
        if item != old
    }
    assert moved == {"Ready", "ContainersReady"}


def test_an_image_that_cannot_be_pulled_is_a_waiting_state() -> None:
    seen = view(a=ContainerView(waiting=Waiting("ErrImagePull", "no such image")))
    status = pod_status(pod("a"), seen, now=NOW)
    assert status["containerStatuses"][0]["state"] == {
        "waiting": {"reason": "ErrImagePull", "message": "no such image"}
    }
    assert status["phase"] == "Pending"


def test_a_pod_past_its_deadline_has_failed() -> None:
    over = PodView(containers=view(a=exited(137)).containers, sandbox=True, ended=("DeadlineExceeded", "too long"))
    status = pod_status(pod("a"), over, now=NOW)
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "DeadlineExceeded", "too long")
    assert "terminated" in status["containerStatuses"][0]["state"]


@pytest.mark.parametrize(("policy", "phase", "disrupted"), [("Never", "Failed", True), ("OnFailure", "Running", False)])
def test_a_pod_that_ended_with_its_node_has_the_disruption_target_condition(
    policy: str, phase: str, disrupted: bool
) -> None:
    seen = view(a=exited(0), b=replace(exited(137), node_stopped=True))
    status = pod_status(pod("a", "b", policy=policy), seen, now=NOW)
    words = "Pod was terminated in response to imminent node shutdown."
    assert (status["phase"], status.get("reason") == "Terminated") == (phase, disrupted)
    assert status.get("message") == (words if disrupted else None)
    assert conditions(status).get("DisruptionTarget") == (("True", "TerminationByKubelet") if disrupted else None)
    again = pod_status({**pod("a", "b", policy=policy), "status": status}, seen, now=NOW + 60)
    assert again == status


def test_the_phase_fails_by_deadline_only_when_the_last_container_has_stopped() -> None:
    over = PodView(containers=view(a=running()).containers, sandbox=True, ended=("DeadlineExceeded", "too long"))
    status = pod_status(pod("a"), over, now=NOW)
    assert (status["phase"], status.get("reason")) == ("Running", None)
    assert decide(pod("a"), over, now=NOW) == PodActions(stop=("a",))


def test_status_fields_of_other_writers_are_kept() -> None:
    manifest = pod("a")
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    manifest["status"] = {"qosClass": "BestEffort", "conditions": [scheduled, {"type": "Mine", "status": "True"}]}
    status = pod_status(manifest, view(a=running()), now=NOW)
    assert status["qosClass"] == "BestEffort"
    assert conditions(status)["Mine"] == ("True", "")
    assert status["conditions"][-1]["lastTransitionTime"] == "2026-01-01T00:00:00Z"
