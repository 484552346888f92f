"""The pods whose lifecycles are compared, and the goal of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchyard.api.objects import Object


@dataclass(frozen=True, slots=True)
class PodScenario:
    """A pod's spec, the goal to wait for, and the grace period of its deletion (None: no deletion)."""

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
    """A pod whose only container checks a volume at /v."""
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
    "success": PodScenario(spec(container("exit 0")), "Succeeded"),
    "failure": PodScenario(spec(container("exit 3")), "Failed"),
    "code-255": PodScenario(spec(container("exit 255")), "Failed"),
    "code-127": PodScenario(spec(container("no-such-program")), "Failed"),
    "killed": PodScenario(spec(container("sleep 0.3; kill -9 $$; sleep 5 & kill -9 $!; exit 137")), "Failed"),
    "message": PodScenario(spec(container("echo why > /dev/termination-log; exit 1")), "Failed"),
    "message-of-success": PodScenario(spec(container("echo fine > /dev/termination-log")), "Succeeded"),
    "message-elsewhere": PodScenario(
        spec(container("echo why > /tmp/said; exit 1", terminationMessagePath="/tmp/said")),
        "Failed",
    ),
    "message-from-logs": PodScenario(
        spec(container("echo last line; exit 1", terminationMessagePolicy="FallbackToLogsOnError")), "Failed"
    ),
    "two-containers": PodScenario(spec(container("exit 0", "a"), container("exit 2", "b")), "Failed"),
    "out-of-memory": PodScenario(
        spec(container("exec tail /dev/zero", resources={"limits": {"memory": "32Mi"}})), "Failed"
    ),
    "no-command": PodScenario(spec({**container(""), "command": ["/no/such/program"]}), "Failed"),
}

RESTARTS = {
    "on-failure": PodScenario(spec(container("exit 0"), policy="OnFailure"), "Succeeded"),
    "second-try": PodScenario(
        spec(
            container("test -e /v/x || { touch /v/x; exit 1; }", volumeMounts=SHARED),
            policy="OnFailure",
            volumes=SCRATCH,
        ),
        "Succeeded",
    ),
    "crash-loop": PodScenario(spec(container("exit 1"), policy="Always"), "CrashLoopBackOff"),
    "clean-loop": PodScenario(spec(container("exit 0"), policy="Always"), "CrashLoopBackOff"),
    "one-of-two-crashes": PodScenario(
        spec(container("exit 1", "a"), container(WAITS, "b"), policy="Always"), "CrashLoopBackOff"
    ),
    "running": PodScenario(spec(container("sleep 300"), policy="Always"), "Running"),
}

INITS = {
    "init": PodScenario(
        spec(
            container("cat /v/f", volumeMounts=SHARED),
            initContainers=[container("echo x > /v/f", "i", volumeMounts=SHARED)],
            volumes=SCRATCH,
        ),
        "Succeeded",
    ),
    "two-inits": PodScenario(
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
    "init-fails": PodScenario(spec(container("exit 0"), initContainers=[container("exit 4", "i")]), "Failed"),
    "init-waits": PodScenario(spec(container("exit 0"), initContainers=[container("sleep 300", "i")]), "InitRunning"),
    "init-crash-loop": PodScenario(
        spec(container("exit 0"), policy="Always", initContainers=[container("exit 4", "i")]), "InitCrashLoop"
    ),
    "init-second-try": PodScenario(
        spec(
            container("exit 0"),
            policy="OnFailure",
            initContainers=[container("test -e /v/x || { touch /v/x; exit 1; }", "i", volumeMounts=SHARED)],
            volumes=SCRATCH,
        ),
        "Succeeded",
    ),
    "sidecar": PodScenario(
        spec(container("exit 0"), initContainers=[container(WAITS, "s", restartPolicy="Always")]), "Succeeded"
    ),
    "sidecar-first": PodScenario(
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
    "sidecar-with-running": PodScenario(
        spec(container(WAITS), policy="Always", initContainers=[container(WAITS, "s", restartPolicy="Always")]),
        "Running",
    ),
}

PROBES = {
    "not-ready": PodScenario(
        spec(container("sleep 300", readinessProbe=_exec_probe("exit 1")), policy="Always"), "Unready"
    ),
    "ready": PodScenario(spec(container("sleep 300", readinessProbe=_exec_probe("exit 0")), policy="Always"), "Ready"),
    "tcp-refused": PodScenario(
        spec(container("sleep 300", readinessProbe={"tcpSocket": {"port": 81}, "periodSeconds": 1}), policy="Always"),
        "Unready",
    ),
    "http-refused": PodScenario(
        spec(container("sleep 300", readinessProbe={"httpGet": {"port": 81}, "periodSeconds": 1}), policy="Always"),
        "Unready",
    ),
    "probe-times-out": PodScenario(
        spec(container("sleep 300", readinessProbe=_exec_probe("sleep 5", timeoutSeconds=1)), policy="Always"),
        "Unready",
    ),
    "alive": PodScenario(spec(container("sleep 300", livenessProbe=_exec_probe("exit 0")), policy="Always"), "Ready"),
    "liveness": PodScenario(
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
    "liveness-never": PodScenario(
        spec(container(WAITS, livenessProbe=_exec_probe("exit 1", failureThreshold=1))), "Succeeded"
    ),
    "startup-fails": PodScenario(
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
    "startup-waits": PodScenario(
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
    "readiness-gate": PodScenario(
        spec(container("sleep 300"), policy="Always", readinessGates=[{"conditionType": "example.org/ok"}]), "Running"
    ),
}

HOOKS = {
    "post-start": PodScenario(
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
    "post-start-fails": PodScenario(
        spec(container(WAITS, lifecycle={"postStart": {"exec": {"command": ["sh", "-c", "exit 1"]}}})), "Succeeded"
    ),
    "deadline": PodScenario(spec(container("sleep 300"), activeDeadlineSeconds=2), "Failed"),
    "deadline-always": PodScenario(spec(container(WAITS), policy="Always", activeDeadlineSeconds=2), "Failed"),
    "deadline-in-init": PodScenario(
        spec(container("exit 0"), initContainers=[container("sleep 300", "i")], activeDeadlineSeconds=2), "Failed"
    ),
}

DELETIONS = {
    "deleted": PodScenario(spec(container(WAITS), policy="Always"), "Running", grace=5),
    "deleted-stubborn": PodScenario(spec(container(STUBBORN), policy="Always"), "Running", grace=1),
    "deleted-at-once": PodScenario(spec(container(STUBBORN), policy="Always"), "Running", grace=0),
    "deleted-with-hook": PodScenario(
        spec(container(WAITS, lifecycle={"preStop": {"exec": {"command": ["sleep", "1"]}}}), policy="Always"),
        "Running",
        grace=5,
    ),
    "deleted-after-the-end": PodScenario(spec(container("exit 3")), "Failed", grace=5),
    "deleted-with-sidecar": PodScenario(
        spec(container(WAITS), policy="Always", initContainers=[container(WAITS, "s", restartPolicy="Always")]),
        "Running",
        grace=5,
    ),
    "deleted-in-init": PodScenario(
        spec(container("exit 0"), initContainers=[container(WAITS, "i")]), "InitRunning", grace=5
    ),
}

VOLUMES = {
    "config-volume": PodScenario(
        _sees("test $(cat /v/key) = value", {"configMap": {"name": "lifecycle"}}), "Succeeded"
    ),
    "config-items": PodScenario(
        _sees(
            "test $(cat /v/a/b) = value && test $(ls /v) = a",
            {"configMap": {"name": "lifecycle", "items": [{"key": "key", "path": "a/b"}]}},
        ),
        "Succeeded",
    ),
    "config-missing": PodScenario(_sees("exit 0", {"configMap": {"name": "none"}}), "ContainerCreating"),
    "config-optional": PodScenario(
        _sees('test -z "$(ls /v)"', {"configMap": {"name": "none", "optional": True}}), "Succeeded"
    ),
    "secret-volume": PodScenario(
        _sees("test $(cat /v/password) = s3cret", {"secret": {"secretName": "lifecycle"}}), "Succeeded"
    ),
    "projected": PodScenario(
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
    "downward": PodScenario(
        _sees(
            "test $(cat /v/ns) = default",
            {"downwardAPI": {"items": [{"path": "ns", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        ),
        "Succeeded",
    ),
    "in-memory": PodScenario(
        _sees("grep -q ' /v tmpfs ' /proc/mounts", {"emptyDir": {"medium": "Memory"}}), "Succeeded"
    ),
    "sub-path": PodScenario(
        _sees("test $(cat /v) = value", {"configMap": {"name": "lifecycle"}}, subPath="key"), "Succeeded"
    ),
    "read-only": PodScenario(_sees("! touch /v/x 2>/dev/null", {"emptyDir": {}}, readOnly=True), "Succeeded"),
    "host-path-missing": PodScenario(
        _sees("exit 0", {"hostPath": {"path": "/no/such/place", "type": "Directory"}}), "ContainerCreating"
    ),
    "host-path-wrong-type": PodScenario(
        _sees("exit 0", {"hostPath": {"path": "/etc/passwd", "type": "Directory"}}), "ContainerCreating"
    ),
}

ENVIRONMENT = {
    "env": PodScenario(
        _env(
            'test "$A-$B-$C" = "1-x1-lifecycle-env"',
            {"name": "A", "value": "1"},
            {"name": "B", "value": "x$(A)"},
            {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ),
        "Succeeded",
    ),
    "env-escaped": PodScenario(
        # the command is expanded too, so what must stay is written in pieces
        _env(
            """test "$B" = '$'"(A)-"'$'"(LATER)-"'$'""",
            {"name": "A", "value": "1"},
            {"name": "B", "value": "$$(A)-$(LATER)-$"},
            {"name": "LATER", "value": "2"},
        ),
        "Succeeded",
    ),
    "args-expanded": PodScenario(
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
    "env-from": PodScenario(
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
    "env-resources": PodScenario(
        _env(
            'test "$C-$M" = 2-64',
            {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {"name": "M", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
            resources={"limits": {"cpu": "1500m", "memory": "64Mi"}, "requests": {"cpu": "10m", "memory": "8Mi"}},
        ),
        "Succeeded",
    ),
    "missing-config": PodScenario(
        spec(container("exit 0", envFrom=[{"configMapRef": {"name": "none"}}])), "CreateContainerConfigError"
    ),
    "missing-key": PodScenario(
        _env("exit 0", {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "lifecycle", "key": "none"}}}),
        "CreateContainerConfigError",
    ),
    "missing-secret": PodScenario(
        _env("exit 0", {"name": "A", "valueFrom": {"secretKeyRef": {"name": "none", "key": "none"}}}),
        "CreateContainerConfigError",
    ),
}

ENVIRONMENT_SCENARIOS = {
    "run-as": PodScenario(spec(container("test $(id -u) = 1234"), securityContext={"runAsUser": 1234}), "Succeeded"),
    "non-root": PodScenario(
        spec(container("exit 0"), securityContext={"runAsNonRoot": True}), "CreateContainerConfigError"
    ),
    "working-dir": PodScenario(spec(container("test $(pwd) = /a/b", workingDir="/a/b")), "Succeeded"),
    "read-only-root": PodScenario(
        spec(container("! touch /x 2>/dev/null", securityContext={"readOnlyRootFilesystem": True})), "Succeeded"
    ),
    "host-name": PodScenario(spec(container("test $(hostname) = other"), hostname="other"), "Succeeded"),
    "host-alias": PodScenario(
        spec(container("grep -q '^10.1.2.3.*far$' /etc/hosts"), hostAliases=[{"ip": "10.1.2.3", "hostnames": ["far"]}]),
        "Succeeded",
    ),
    "image-never": PodScenario(
        spec({**container("exit 0"), "image": "not-here", "imagePullPolicy": "Never"}), "ErrImageNeverPull"
    ),
    "image-name": PodScenario(spec({**container("exit 0"), "image": "busybox:!"}), "InvalidImageName"),
}

SCENARIOS: dict[str, PodScenario] = {
    **ENDS,
    **RESTARTS,
    **INITS,
    **PROBES,
    **HOOKS,
    **DELETIONS,
    **VOLUMES,
    **ENVIRONMENT,
    **ENVIRONMENT_SCENARIOS,
}
