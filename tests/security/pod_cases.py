"""Hostile pod specs: what they ask for is refused, or leads nowhere.

A pod's verdict is `refused` if the API server rejects it or its container cannot be created, otherwise what its
container printed. The container looks for a file of the machine (`SEEK`), which nothing in the pod must lead to.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.security.escape_runner import NAMESPACE, delete_pod, logs
from tests.support.http import Client

from torchyard.api.objects import Object

_SECONDS = 120.0
# Look for the marked file at the paths given as arguments, in and above the working directory, and in all mounts.
SEEK = """
import os, sys
mark, path = os.environ["ESCAPE_HOST_MARK"], os.environ["ESCAPE_HOST_FILE"]
ways = [*sys.argv[1:], ".", *["../" * depth + path[1:] for depth in range(12)]]
ways += [line.split()[4] for line in open("/proc/self/mountinfo")]
for way in ways:
    try:
        file = f"{way}/{mark}" if os.path.isdir(way) else way
        if os.path.isfile(file) and open(file, "rb").read(6) == b"secret":
            print("allowed: " + way)
            break
    except OSError:
        continue
else:
    print("absent")
"""


@dataclass(frozen=True)
class PodCase:
    """`prepare` is a Python program that an init container runs in the volume /shared; `{directory}` and `{file}` are
    the directory and the path of the machine's file."""

    container: Object = field(default_factory=dict)
    mounts: tuple[Object, ...] = ()
    prepare: str = ""
    pod: Object = field(default_factory=dict)
    volumes: tuple[Object, ...] = ()


def _link(target: str, sub_path: str = "way") -> PodCase:
    """A subPath that an init container made a symbolic link."""
    mount = {"name": "shared", "mountPath": "/mnt/way", "subPath": sub_path}
    return PodCase(mounts=(mount,), prepare=f"import os; os.symlink({target!r}, '/shared/way')")


def _mount_at(path: str) -> PodCase:
    return PodCase(mounts=({"name": "shared", "mountPath": path},))


def _message_at(path: str, prepare: str = "") -> PodCase:
    return PodCase({"terminationMessagePath": path}, prepare=prepare)


POD_CASES: dict[str, PodCase] = {
    "subPath is a link to a directory of the machine": _link("{directory}"),
    "subPath is a link to a file of the machine": _link("{file}"),
    "subPath is a link that climbs": _link("../../../../../../../../../../../../../../{directory}"),
    "subPath leads through a link": _link("/", "way{directory}"),
    "subPath is a link to the root of a process": _link("/proc/1/root{directory}"),
    "subPath is a link to the runtime's own process": _link("/proc/self/cwd"),
    "subPath is a link to a descriptor": _link("/proc/self/fd/5"),
    "subPath is a chain of links": PodCase(
        mounts=({"name": "shared", "mountPath": "/mnt/way", "subPath": "a/b"},),
        prepare="import os; os.mkdir('/shared/c'); os.symlink('c', '/shared/a');"
        " os.symlink('{directory}', '/shared/c/b')",
    ),
    "subPath climbs": PodCase(mounts=({"name": "shared", "mountPath": "/mnt/way", "subPath": "../.."},)),
    "subPath is absolute": PodCase(mounts=({"name": "shared", "mountPath": "/mnt/way", "subPath": "{directory}"},)),
    "subPathExpr climbs": PodCase(
        {"env": [{"name": "UP", "value": ".."}]},
        mounts=({"name": "shared", "mountPath": "/mnt/way", "subPathExpr": "$(UP)/$(UP)/$(UP)"},),
    ),
    "subPathExpr is absolute": PodCase(
        mounts=({"name": "shared", "mountPath": "/mnt/way", "subPathExpr": "$(ESCAPE_HOST_DIRECTORY)"},),
    ),
    "mount at /proc": _mount_at("/proc"),
    "mount at /proc/sys": _mount_at("/proc/sys"),
    "mount at /proc/self": _mount_at("/proc/self"),
    "mount at /proc/1/root": _mount_at("/proc/1/root"),
    "mount at the root": _mount_at("/"),
    "mount at a path that climbs": _mount_at("/mnt/../../../../../../{directory}"),
    "mount at a path with a colon": _mount_at("/mnt:{directory}"),
    "mount at a link to /proc": PodCase(
        mounts=({"name": "other", "mountPath": "/shared/way/sys"},),
        volumes=({"name": "other", "emptyDir": {}},),
        prepare="import os; os.symlink('/proc', '/shared/way')",
    ),
    "mount at a link that climbs": PodCase(
        mounts=({"name": "other", "mountPath": "/shared/way"},),
        volumes=({"name": "other", "emptyDir": {}},),
        prepare="import os; os.symlink('../../../../../../../../{directory}', '/shared/way')",
    ),
    "config map item climbs": PodCase(
        volumes=({"name": "other", "configMap": {"name": "hostile", "items": [{"key": "proc.py", "path": "../x"}]}},)
    ),
    "termination message at a sysctl": _message_at("/proc/sys/kernel/core_pattern"),
    "termination message climbs": _message_at("../../../../../../../../{file}"),
    "termination message at a link": _message_at("/shared/way", "import os; os.symlink('{file}', '/shared/way')"),
    "volume is a block device": PodCase(
        {"volumeDevices": [{"name": "other", "devicePath": "/dev/xvda"}]},
        volumes=({"name": "other", "emptyDir": {}},),
    ),
    "unsafe sysctl": PodCase(pod={"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]}}),
    "sysctl of the machine": PodCase(pod={"securityContext": {"sysctls": [{"name": "vm.swappiness", "value": "60"}]}}),
    "sysctl that climbs": PodCase(
        pod={"securityContext": {"sysctls": [{"name": "net.ipv4.../../kernel/panic", "value": "0"}]}}
    ),
    "root despite runAsNonRoot": PodCase({"securityContext": {"runAsNonRoot": True, "runAsUser": 0}}),
    "privileged without escalation": PodCase(
        {"securityContext": {"privileged": True, "allowPrivilegeEscalation": False}}
    ),
    "unmasked /proc": PodCase({"securityContext": {"procMount": "Unmasked"}}),
    "unknown capability": PodCase({"securityContext": {"capabilities": {"add": ["EVERYTHING"]}}}),
    "seccomp profile that climbs": PodCase(
        {"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "../../../../{file}"}}}
    ),
    "seccomp profile that is missing": PodCase(
        {"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "nothing.json"}}}
    ),
    **{
        f"working directory is descriptor {number}": PodCase({"workingDir": f"/proc/self/fd/{number}"})
        for number in range(3, 13)
    },
    "working directory climbs": PodCase({"workingDir": "/../../../../../../../{directory}"}),
    "working directory is that of a process": PodCase({"workingDir": "/proc/1/cwd"}),
    "user id is negative": PodCase({"securityContext": {"runAsUser": -1}}),
    "user id is too large": PodCase({"securityContext": {"runAsUser": 1 << 32}}),
    "host name with a newline": PodCase(pod={"hostname": "a\nb"}),
    "host alias with a newline": PodCase(pod={"hostAliases": [{"ip": "127.0.0.1\n10.0.0.1", "hostnames": ["x"]}]}),
    "environment variable with a null": PodCase({"env": [{"name": "A\x00B", "value": "x"}]}),
    "environment variable with an equals sign": PodCase({"env": [{"name": "A=B", "value": "x"}]}),
    "volume name that climbs": PodCase(volumes=({"name": "../../x", "emptyDir": {}},)),
    "container name that climbs": PodCase({"name": "../../x"}),
    "container name with a slash": PodCase({"name": "a/b"}),
    "claim name that climbs": PodCase(volumes=({"name": "other", "persistentVolumeClaim": {"claimName": "../x"}},)),
    "hostPath that climbs": PodCase(volumes=({"name": "other", "hostPath": {"path": "/tmp/../.."}},)),
    "projected path that climbs": PodCase(
        volumes=(
            {
                "name": "other",
                "projected": {"sources": [{"downwardAPI": {"items": [
                    {"path": "../../x", "fieldRef": {"fieldPath": "metadata.name"}}]}}]},
            },
        )
    ),
}  # fmt: skip


def fill(value: Any, directory: str, file: str) -> Any:
    """Put the machine's paths into a spec."""
    text = json.dumps(value).replace("{directory}", directory).replace("{file}", file)
    return json.loads(text)


def pod_of(name: str, case: PodCase, image: str, targets: Mapping[str, str]) -> Object:
    file = targets["HOST_FILE"]
    directory = file.rpartition("/")[0]
    env = [
        {"name": "ESCAPE_HOST_MARK", "value": targets["HOST_MARK"]},
        {"name": "ESCAPE_HOST_FILE", "value": file},
        {"name": "ESCAPE_HOST_DIRECTORY", "value": directory},
    ]
    mounts = [{"name": "shared", "mountPath": "/shared"}]
    base: Object = {"image": image, "imagePullPolicy": "IfNotPresent"}
    container: Object = {
        **base,
        "name": "main",
        "command": ["python3", "-S", "-B", "-c", SEEK, "/mnt/way", "/shared/way"],
        **case.container,
        "env": [*env, *case.container.get("env", ())],
        "volumeMounts": [*mounts, *case.mounts],
    }
    spec: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "containers": [container],
        "volumes": [{"name": "shared", "emptyDir": {}}, *case.volumes],
        **case.pod,
    }
    if case.prepare:
        command = ["python3", "-S", "-B", "-c", case.prepare]
        spec["initContainers"] = [{**base, "name": "init", "command": command, "volumeMounts": mounts}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    filled: Object = fill(pod, directory, file)
    return filled


_WAITING = (
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "StartError",
)


def verdict_of(client: Client, name: str, container: str = "main") -> str | None:
    """The pod's verdict, or None while it is not known."""
    pod: Object = client.get(f"{NAMESPACE}/pods/{name}").json
    status = pod.get("status") or {}
    if status.get("reason") in ("SysctlForbidden", "Forbidden", "UnexpectedAdmissionError"):
        return "refused"
    for entry in status.get("containerStatuses") or ():
        waiting, ended = entry["state"].get("waiting") or {}, entry["state"].get("terminated") or {}
        if waiting.get("reason") in _WAITING or ended.get("reason") in ("StartError", "ContainerCannotRun"):
            return "refused"
        if ended:
            return logs(client, name, container).strip() or f"exit code {ended['exitCode']}"
    return "refused" if status.get("phase") == "Failed" else _stuck(client, name)


_STUCK = ("FailedMount", "FailedCreatePodSandBox", "FailedScheduling")


def _stuck(client: Client, name: str) -> str | None:
    """A volume that cannot be mounted keeps the pod waiting, with an event."""
    query = {"fieldSelector": f"involvedObject.name={name}"}
    events = client.get(f"{NAMESPACE}/events", query=query).json["items"]
    return "refused" if any(event["reason"] in _STUCK for event in events) else None


def run_pod_cases(
    client: Client, cases: Mapping[str, PodCase], image: str, targets: Mapping[str, str]
) -> dict[str, str]:
    """The verdict of each pod; all run at the same time."""
    verdicts: dict[str, str] = {}
    waiting: dict[str, str] = {}
    for number, (name, case) in enumerate(cases.items()):
        pod_name = f"asking-{number}"
        answer = client.post(f"{NAMESPACE}/pods", pod_of(pod_name, case, image, targets))
        if answer.status == 201:
            waiting[name] = pod_name
        else:
            assert answer.status in (400, 403, 422), (name, answer)
            verdicts[name] = "refused"
    deadline = time.monotonic() + _SECONDS
    while waiting:
        for name, pod_name in list(waiting.items()):
            verdict = verdict_of(client, pod_name)
            if verdict is not None:
                verdicts[name] = verdict
                delete_pod(client, waiting.pop(name))
        if time.monotonic() > deadline:
            verdicts |= dict.fromkeys(waiting, "timeout")
            break
        time.sleep(0.2)
    return verdicts
