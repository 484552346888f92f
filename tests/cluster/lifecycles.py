"""A table of pods and the story each of them tells, in its status and its events, on whichever node it runs.

The stories of a real kubelet (1.34, containerd) lie beside this file as `lifecycles.json`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.kube.client import Client
from torchyard.kube.refs import CONFIG_MAPS, EVENTS, PODS, SECRETS

Object = dict[str, Any]
RECORDED = Path(__file__).with_name("lifecycles.json")


@dataclass(frozen=True, slots=True)
class Life:
    """A pod's spec, what to wait for, and with how much grace it is then deleted (None: not part of the story)."""

    spec: Object
    goal: str
    grace: int | None = None


def container(script: str, name: str = "main", **more: Any) -> Object:
    return {
        "name": name,
        "image": "busybox",
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
        **more,
    }


def spec(*containers: Object, policy: str = "Never", **more: Any) -> Object:
    return {"restartPolicy": policy, "containers": list(containers), "terminationGracePeriodSeconds": 2, **more}


def _exec_probe(command: str, **more: Any) -> Object:
    return {"exec": {"command": ["sh", "-c", command]}, "periodSeconds": 1, "timeoutSeconds": 10, **more}


def _sees(script: str, volume: Object, **mount: Any) -> Object:
    """A pod whose one container judges a volume at /v."""
    mounts = [{"name": "v", "mountPath": "/v", **mount}]
    return spec(container(script, volumeMounts=mounts), volumes=[{"name": "v", **volume}])


def _env(check: str, *variables: Object, **more: Any) -> Object:
    return spec(container(check, env=list(variables), **more))


SHARED = [{"name": "v", "mountPath": "/v"}]
SCRATCH = [{"name": "v", "emptyDir": {}}]
WAITS = "trap 'exit 0' TERM; while true; do sleep 0.1; done"
FAILS_ONCE = "test -e /v/failed || { touch /v/failed; exit 1; }"
STUBBORN = "trap '' TERM; while true; do sleep 0.1; done"

ENDS = {
    "success": Life(spec(container("exit 0")), "Succeeded"),
    "failure": Life(spec(container("exit 3")), "Failed"),
    "code-255": Life(spec(container("exit 255")), "Failed"),
    "code-127": Life(spec(container("no-such-program")), "Failed"),
    "killed": Life(spec(container("sleep 0.3; kill -9 $$; sleep 5 & kill -9 $!; exit 137")), "Failed"),
    "message": Life(spec(container("echo why > /dev/termination-log; exit 1")), "Failed"),
    "message-of-success": Life(spec(container("echo fine > /dev/termination-log")), "Succeeded"),
    "message-elsewhere": Life(
        spec(container("echo why > /tmp/said; exit 1", terminationMessagePath="/tmp/said")),
        "Failed",
    ),
    "message-from-logs": Life(
        spec(container("echo last line; exit 1", terminationMessagePolicy="FallbackToLogsOnError")), "Failed"
    ),
    "two-containers": Life(spec(container("exit 0", "a"), container("exit 2", "b")), "Failed"),
    "out-of-memory": Life(spec(container("exec tail /dev/zero", resources={"limits": {"memory": "32Mi"}})), "Failed"),
    "no-command": Life(spec({**container(""), "command": ["/no/such/program"]}), "Failed"),
}

RESTARTS = {
    "on-failure": Life(spec(container("exit 0"), policy="OnFailure"), "Succeeded"),
    "second-try": Life(
        spec(
            container("test -e /v/x || { touch /v/x; exit 1; }", volumeMounts=SHARED),
            policy="OnFailure",
            volumes=SCRATCH,
        ),
        "Succeeded",
    ),
    "crash-loop": Life(spec(container("exit 1"), policy="Always"), "CrashLoopBackOff"),
    "clean-loop": Life(spec(container("exit 0"), policy="Always"), "CrashLoopBackOff"),
    "one-of-two-crashes": Life(
        spec(container("exit 1", "a"), container(WAITS, "b"), policy="Always"), "CrashLoopBackOff"
    ),
    "running": Life(spec(container("sleep 300"), policy="Always"), "Running"),
}

INITS = {
    "init": Life(
        spec(
            container("cat /v/f", volumeMounts=SHARED),
            initContainers=[container("echo x > /v/f", "i", volumeMounts=SHARED)],
            volumes=SCRATCH,
        ),
        "Succeeded",
    ),
    "two-inits": Life(
        spec(
            container("test $(cat /v/f) = ab", volumeMounts=SHARED),
            initContainers=[
                container("printf a >> /v/f", "i", volumeMounts=SHARED),
                container("printf b >> /v/f", "j", volumeMounts=SHARED),
            ],
            volumes=SCRATCH,
        ),
        "Succeeded",
    ),
    "init-fails": Life(spec(container("exit 0"), initContainers=[container("exit 4", "i")]), "Failed"),
    "init-waits": Life(spec(container("exit 0"), initContainers=[container("sleep 300", "i")]), "InitRunning"),
    "init-crash-loop": Life(
        spec(container("exit 0"), policy="Always", initContainers=[container("exit 4", "i")]), "InitCrashLoop"
    ),
    "init-second-try": Life(
        spec(
            container("exit 0"),
            policy="OnFailure",
            initContainers=[container("test -e /v/x || { touch /v/x; exit 1; }", "i", volumeMounts=SHARED)],
            volumes=SCRATCH,
        ),
        "Succeeded",
    ),
    "sidecar": Life(
        spec(container("exit 0"), initContainers=[container(WAITS, "s", restartPolicy="Always")]), "Succeeded"
    ),
    "sidecar-first": Life(
        spec(
            container("test -e /v/up", volumeMounts=SHARED),
            initContainers=[
                container(
                    f"sleep 3; touch /v/up; {WAITS}",
                    "s",
                    restartPolicy="Always",
                    volumeMounts=SHARED,
                    startupProbe=_exec_probe("test -e /v/up", failureThreshold=20),
                )
            ],
            volumes=SCRATCH,
        ),
        "Succeeded",
    ),
    "sidecar-with-running": Life(
        spec(container(WAITS), policy="Always", initContainers=[container(WAITS, "s", restartPolicy="Always")]),
        "Running",
    ),
}

PROBES = {
    "not-ready": Life(spec(container("sleep 300", readinessProbe=_exec_probe("exit 1")), policy="Always"), "Unready"),
    "ready": Life(spec(container("sleep 300", readinessProbe=_exec_probe("exit 0")), policy="Always"), "Ready"),
    "tcp-refused": Life(
        spec(container("sleep 300", readinessProbe={"tcpSocket": {"port": 81}, "periodSeconds": 1}), policy="Always"),
        "Unready",
    ),
    "http-refused": Life(
        spec(container("sleep 300", readinessProbe={"httpGet": {"port": 81}, "periodSeconds": 1}), policy="Always"),
        "Unready",
    ),
    "probe-times-out": Life(
        spec(container("sleep 300", readinessProbe=_exec_probe("sleep 5", timeoutSeconds=1)), policy="Always"),
        "Unready",
    ),
    "alive": Life(spec(container("sleep 300", livenessProbe=_exec_probe("exit 0")), policy="Always"), "Ready"),
    "liveness": Life(
        spec(
            container(
                WAITS,
                volumeMounts=SHARED,
                livenessProbe=_exec_probe(FAILS_ONCE, failureThreshold=1),
            ),
            policy="Always",
            volumes=SCRATCH,
        ),
        "Restarted",
    ),
    "liveness-never": Life(
        spec(container(WAITS, livenessProbe=_exec_probe("exit 1", failureThreshold=1))), "Succeeded"
    ),
    "startup-fails": Life(
        spec(
            container(
                WAITS,
                volumeMounts=SHARED,
                startupProbe=_exec_probe(FAILS_ONCE, failureThreshold=1),
            ),
            policy="Always",
            volumes=SCRATCH,
        ),
        "Restarted",
    ),
    "startup-waits": Life(
        spec(
            container(
                "sleep 300",
                startupProbe=_exec_probe("exit 1", failureThreshold=100),
                livenessProbe=_exec_probe("exit 1", failureThreshold=1),
            ),
            policy="Always",
        ),
        "Unready",
    ),
    "readiness-gate": Life(
        spec(container("sleep 300"), policy="Always", readinessGates=[{"conditionType": "example.org/ok"}]), "Running"
    ),
}

HOOKS = {
    "post-start": Life(
        spec(
            container(
                "sleep 1; test -e /v/hook",
                volumeMounts=SHARED,
                lifecycle={"postStart": {"exec": {"command": ["touch", "/v/hook"]}}},
            ),
            volumes=SCRATCH,
        ),
        "Succeeded",
    ),
    "post-start-fails": Life(
        spec(container(WAITS, lifecycle={"postStart": {"exec": {"command": ["sh", "-c", "exit 1"]}}})), "Succeeded"
    ),
    "deadline": Life(spec(container("sleep 300"), activeDeadlineSeconds=2), "Failed"),
    "deadline-always": Life(spec(container(WAITS), policy="Always", activeDeadlineSeconds=2), "Failed"),
    "deadline-in-init": Life(
        spec(container("exit 0"), initContainers=[container("sleep 300", "i")], activeDeadlineSeconds=2), "Failed"
    ),
}

DELETIONS = {
    "deleted": Life(spec(container(WAITS), policy="Always"), "Running", grace=5),
    "deleted-stubborn": Life(spec(container(STUBBORN), policy="Always"), "Running", grace=1),
    "deleted-at-once": Life(spec(container(STUBBORN), policy="Always"), "Running", grace=0),
    "deleted-with-hook": Life(
        spec(container(WAITS, lifecycle={"preStop": {"exec": {"command": ["sleep", "1"]}}}), policy="Always"),
        "Running",
        grace=5,
    ),
    "deleted-after-the-end": Life(spec(container("exit 3")), "Failed", grace=5),
    "deleted-with-sidecar": Life(
        spec(container(WAITS), policy="Always", initContainers=[container(WAITS, "s", restartPolicy="Always")]),
        "Running",
        grace=5,
    ),
    "deleted-in-init": Life(spec(container("exit 0"), initContainers=[container(WAITS, "i")]), "InitRunning", grace=5),
}

VOLUMES = {
    "config-volume": Life(_sees("test $(cat /v/key) = value", {"configMap": {"name": "lifecycle"}}), "Succeeded"),
    "config-items": Life(
        _sees(
            "test $(cat /v/a/b) = value && test $(ls /v) = a",
            {"configMap": {"name": "lifecycle", "items": [{"key": "key", "path": "a/b"}]}},
        ),
        "Succeeded",
    ),
    "config-missing": Life(_sees("exit 0", {"configMap": {"name": "none"}}), "ContainerCreating"),
    "config-optional": Life(
        _sees('test -z "$(ls /v)"', {"configMap": {"name": "none", "optional": True}}), "Succeeded"
    ),
    "secret-volume": Life(
        _sees("test $(cat /v/password) = s3cret", {"secret": {"secretName": "lifecycle"}}), "Succeeded"
    ),
    "projected": Life(
        _sees(
            "test $(cat /v/key)-$(cat /v/password)-$(cat /v/name) = value-s3cret-lifecycle-projected",
            {
                "projected": {
                    "sources": [
                        {"configMap": {"name": "lifecycle"}},
                        {"secret": {"name": "lifecycle"}},
                        {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                    ]
                }
            },
        ),
        "Succeeded",
    ),
    "downward": Life(
        _sees(
            "test $(cat /v/ns) = default",
            {"downwardAPI": {"items": [{"path": "ns", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        ),
        "Succeeded",
    ),
    "in-memory": Life(_sees("grep -q ' /v tmpfs ' /proc/mounts", {"emptyDir": {"medium": "Memory"}}), "Succeeded"),
    "sub-path": Life(_sees("test $(cat /v) = value", {"configMap": {"name": "lifecycle"}}, subPath="key"), "Succeeded"),
    "read-only": Life(_sees("! touch /v/x 2>/dev/null", {"emptyDir": {}}, readOnly=True), "Succeeded"),
    "host-path-missing": Life(
        _sees("exit 0", {"hostPath": {"path": "/no/such/place", "type": "Directory"}}), "ContainerCreating"
    ),
    "host-path-wrong-type": Life(
        _sees("exit 0", {"hostPath": {"path": "/etc/passwd", "type": "Directory"}}), "ContainerCreating"
    ),
}

ENVIRONMENT = {
    "env": Life(
        _env(
            'test "$A-$B-$C" = "1-x1-lifecycle-env"',
            {"name": "A", "value": "1"},
            {"name": "B", "value": "x$(A)"},
            {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ),
        "Succeeded",
    ),
    "env-escaped": Life(
        # the command is expanded too, so what must stay is written in pieces
        _env(
            """test "$B" = '$'"(A)-"'$'"(LATER)-"'$'""",
            {"name": "A", "value": "1"},
            {"name": "B", "value": "$$(A)-$(LATER)-$"},
            {"name": "LATER", "value": "2"},
        ),
        "Succeeded",
    ),
    "args-expanded": Life(
        spec(
            {
                **container(""),
                "command": ["sh", "-c", "test $0 = x1"],
                "args": ["x$(A)"],
                "env": [{"name": "A", "value": "1"}],
            }
        ),
        "Succeeded",
    ),
    "env-from": Life(
        spec(
            container(
                'test "$P_key$password" = values3cret',
                envFrom=[
                    {"prefix": "P_", "configMapRef": {"name": "lifecycle"}},
                    {"secretRef": {"name": "lifecycle"}},
                    {"configMapRef": {"name": "none", "optional": True}},
                ],
            )
        ),
        "Succeeded",
    ),
    "env-resources": Life(
        _env(
            'test "$C-$M" = 2-64',
            {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {"name": "M", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
            resources={"limits": {"cpu": "1500m", "memory": "64Mi"}, "requests": {"cpu": "10m", "memory": "8Mi"}},
        ),
        "Succeeded",
    ),
    "missing-config": Life(
        spec(container("exit 0", envFrom=[{"configMapRef": {"name": "none"}}])), "CreateContainerConfigError"
    ),
    "missing-key": Life(
        _env("exit 0", {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "lifecycle", "key": "none"}}}),
        "CreateContainerConfigError",
    ),
    "missing-secret": Life(
        _env("exit 0", {"name": "A", "valueFrom": {"secretKeyRef": {"name": "none", "key": "none"}}}),
        "CreateContainerConfigError",
    ),
}

SURROUNDINGS = {
    "run-as": Life(spec(container("test $(id -u) = 1234"), securityContext={"runAsUser": 1234}), "Succeeded"),
    "non-root": Life(spec(container("exit 0"), securityContext={"runAsNonRoot": True}), "CreateContainerConfigError"),
    "working-dir": Life(spec(container("test $(pwd) = /a/b", workingDir="/a/b")), "Succeeded"),
    "read-only-root": Life(
        spec(container("! touch /x 2>/dev/null", securityContext={"readOnlyRootFilesystem": True})), "Succeeded"
    ),
    "host-name": Life(spec(container("test $(hostname) = other"), hostname="other"), "Succeeded"),
    "host-alias": Life(
        spec(container("grep -q '^10.1.2.3.*far$' /etc/hosts"), hostAliases=[{"ip": "10.1.2.3", "hostnames": ["far"]}]),
        "Succeeded",
    ),
    "image-never": Life(
        spec({**container("exit 0"), "image": "not-here", "imagePullPolicy": "Never"}), "ErrImageNeverPull"
    ),
    "image-name": Life(spec({**container("exit 0"), "image": "busybox:!"}), "InvalidImageName"),
}

LIVES: dict[str, Life] = {
    **ENDS,
    **RESTARTS,
    **INITS,
    **PROBES,
    **HOOKS,
    **DELETIONS,
    **VOLUMES,
    **ENVIRONMENT,
    **SURROUNDINGS,
}

# Where the two differ, and why. Everything else must be equal.
KNOWN_DIFFERENCES: dict[str, set[str]] = {
    "no-command": {"containers"},  # the message names the runtime that failed: containerd and runc there, none here
    # A kubelet first asks up to a period after the start; we ask at once, and the restarted container is ready by then.
    "startup-fails": {"conditions", "containers"},
    "deleted-in-init": {"conditions"},  # there the last conditions are written before the phase, here together with it
}


def reached(pod: Object, goal: str) -> bool:
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or []
    inits = status.get("initContainerStatuses") or []
    if goal in ("Succeeded", "Failed", "Running"):
        return bool(status.get("phase") == goal)
    if goal in ("Ready", "Unready"):
        return bool(containers) and "running" in containers[0]["state"] and containers[0]["ready"] is (goal == "Ready")
    if goal == "Restarted":
        return bool(containers) and containers[0]["restartCount"] == 1 and "running" in containers[0]["state"]
    if goal == "InitRunning":
        return bool(inits) and "running" in inits[0]["state"]
    if goal == "InitCrashLoop":
        return any((one["state"].get("waiting") or {}).get("reason") == "CrashLoopBackOff" for one in inits)
    return any((one["state"].get("waiting") or {}).get("reason") == goal for one in containers)


def _told(one: Object) -> Object:
    kind, detail = next(iter(one["state"].items()))
    keys = ("reason", "exitCode", "message") if kind == "terminated" else ("reason",)
    said = {key: detail[key] for key in keys if key in detail}
    return {
        "state": kind,
        **said,
        "ready": one["ready"],
        "started": one.get("started"),
        "restarts": one["restartCount"],
    }


def story(pod: Object, events: list[Object]) -> Object:
    """What must be the same: no times, ids, addresses or amounts."""
    status = pod["status"]
    told = {
        "phase": status["phase"],
        "reason": status.get("reason"),
        "conditions": {one["type"]: [one["status"], one.get("reason")] for one in status["conditions"]},
        "containers": {one["name"]: _told(one) for one in status.get("containerStatuses") or ()},
        "inits": {one["name"]: _told(one) for one in status.get("initContainerStatuses") or ()},
        "events": sorted({one["reason"] for one in events} - {"Scheduled"}),
    }
    found: Object = json.loads(json.dumps(told))
    return found


async def live(client: Client, name: str, life: Life, events_of: Collection[str] = ()) -> Object:
    """Run one pod to its goal, and to its deletion if that is part of it. Events that are expected are waited for."""
    full = f"lifecycle-{name}"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": full},
        "spec": {**life.spec, "automountServiceAccountToken": False},
    }
    created = await client.create(PODS, pod, "default")
    for _ in range(1200):
        found = await client.get(PODS, full, "default")
        if reached(found, life.goal):
            break
        await asyncio.sleep(0.1)
    else:
        raise AssertionError(f"{name} never was {life.goal}: {found['status']}")
    found = await _settled(client, found)
    if life.grace is not None:
        found = await _delete(client, found, life.grace)
    events = await _settled_events(client, created["metadata"]["uid"], set(events_of))
    if life.grace is None:
        await client.delete(PODS, full, "default", grace=0)
    return story(found, events)


async def _delete(client: Client, pod: Object, grace: int) -> Object:
    """The last that was seen of it."""
    name, last = pod["metadata"]["name"], pod
    await client.delete(PODS, name, "default", grace=grace)
    since = pod["metadata"]["resourceVersion"]
    async with aclosing(client.watch(PODS, "default", since=since, fields=f"metadata.name={name}")) as changes:
        async for change, seen in changes:
            if change == "DELETED":
                return seen
            if change != "BOOKMARK":
                last = seen
    return last


async def _settled(client: Client, pod: Object) -> Object:
    """A pod that is over is told about once its sandbox is gone, which a kubelet takes its time for."""
    for _ in range(300):
        if pod["status"]["phase"] not in ("Succeeded", "Failed"):
            return pod
        conditions = {one["type"]: one["status"] for one in pod["status"]["conditions"]}
        if conditions.get("PodReadyToStartContainers") == "False":
            return pod
        await asyncio.sleep(0.1)
        pod = await client.get(PODS, pod["metadata"]["name"], "default")
    raise AssertionError(f"{pod['metadata']['name']} keeps its sandbox")


async def _settled_events(client: Client, uid: str, expected: set[str]) -> list[Object]:
    """A pod's events, once no more come: they are written behind."""
    found: list[Object] = []
    quiet = 0
    while quiet < (8 if expected <= {one["reason"] for one in found} else 100):
        await asyncio.sleep(0.1)
        listed = (await client.list(EVENTS, "default", fields=f"involvedObject.uid={uid}")).items
        quiet = quiet + 1 if len(listed) == len(found) else 0
        found = listed
    return found


async def prepare(client: Client) -> None:
    """The configuration that some of the pods read."""
    metadata = {"name": "lifecycle"}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"key": "value"}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"password": "s3cret"}}
    for ref, wanted in ((CONFIG_MAPS, config), (SECRETS, secret)):
        if await client.find(ref, "lifecycle", "default") is None:
            await client.create(ref, wanted, "default")


async def live_all(client: Client, *, at_once: int, expected: Mapping[str, Object] | None = None) -> dict[str, Object]:
    limit = asyncio.Semaphore(at_once)

    async def one(name: str) -> Object:
        async with limit:
            return await live(client, name, LIVES[name], (expected or {}).get(name, {}).get("events", ()))

    await prepare(client)
    stories = await asyncio.gather(*(one(name) for name in LIVES), return_exceptions=True)
    failed = {name: str(one) for name, one in zip(LIVES, stories, strict=True) if isinstance(one, BaseException)}
    assert failed == {}
    return {name: one for name, one in zip(LIVES, stories, strict=True) if not isinstance(one, BaseException)}


def differences(wanted: dict[str, Object], found: dict[str, Object]) -> dict[str, Object]:
    """By pod and by part of its story, what a kubelet tells and what we tell."""
    different: dict[str, Object] = {}
    for name in LIVES:
        known = KNOWN_DIFFERENCES.get(name, set())
        parts = {part for part in found[name] if wanted.get(name, {}).get(part) != found[name][part]} - known
        if parts:
            different[name] = {part: (wanted.get(name, {}).get(part), found[name][part]) for part in sorted(parts)}
    return different
