"""Every process of a container is confined alike: the first, exec, probes, hooks, init and ephemeral containers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.node import support
from tests.security.escape_runner import NAMESPACE, create_pod, install, logs, volumes, wait_for_pod
from tests.security.planes import HostilePlane, hostile_plane, open_directory, this_user
from tests.support import kubectl as kubectls
from tests.support.http import STRATEGIC
from tests.support.waiting import eventually

from torchyard.api.objects import Object

COMMAND = ["python3", "-S", "-B", "-m", "tests.security.hostile.inheritance"]
RESTRICTED: Object = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "runAsGroup": 1000,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
SECURITY: dict[str, Object] = {"default": {}, "restricted": RESTRICTED, "privileged": {"privileged": True}}
OWN_NAMESPACES = ("mnt", "pid", "cgroup")  # of an init or ephemeral container


@pytest.fixture(scope="module")
def plane() -> Iterator[HostilePlane]:
    support.need_network()
    with open_directory() as directory, hostile_plane(this_user(), directory) as running:
        install(running.server.admin)
        yield running


def container(name: str, security: Object, command: list[str]) -> Object:
    return {
        "name": name,
        "image": "python:3",
        "command": command,
        "env": [{"name": "PYTHONPATH", "value": "/escape"}],
        "volumeMounts": [{"name": "program", "mountPath": "/escape"}, {"name": "shared", "mountPath": "/shared"}],
        "securityContext": security,
    }


def pod_with_every_kind_of_process(name: str, security: Object) -> Object:
    main = container("main", security, ["sh", "-c", f"{' '.join(COMMAND)} /shared/main; exec sleep 600"])
    main["lifecycle"] = {"postStart": {"exec": {"command": [*COMMAND, "/shared/hook"]}}}
    main["readinessProbe"] = {
        "exec": {"command": [*COMMAND, "/shared/probe"]},
        "periodSeconds": 60,
        "timeoutSeconds": 30,
    }
    spec = {
        "terminationGracePeriodSeconds": 1,
        "initContainers": [container("init", security, [*COMMAND, "/shared/init"])],
        "containers": [main],
        "volumes": volumes(),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize("kind", SECURITY)
def test_every_process_of_a_container_is_confined_alike(plane: HostilePlane, kind: str, tmp_path: Path) -> None:
    client, name = plane.server.admin, f"confined-{kind}"
    kubectl = kubectls.need().using(plane.server.kubeconfig, tmp_path, "default")
    create_pod(client, pod_with_every_kind_of_process(name, SECURITY[kind]))
    wait_for_pod(client, name, ("Running",))
    files = ("init", "main", "hook", "probe")
    present = ["exec", name, "-c", "main", "--", "sh", "-c", "cd /shared; ls " + " ".join(files)]
    eventually(lambda: kubectl.run(*present).returncode == 0, "the reports of all processes")
    reports: dict[str, Any] = {
        file: json.loads(kubectl("exec", name, "-c", "main", "--", "cat", f"/shared/{file}")) for file in files
    }
    reports["exec"] = json.loads(kubectl("exec", name, "-c", "main", "--", *COMMAND))
    ephemeral = container("debug", SECURITY[kind], COMMAND)
    patched = client.patch(
        f"{NAMESPACE}/pods/{name}/ephemeralcontainers", {"spec": {"ephemeralContainers": [ephemeral]}}, STRATEGIC
    )
    assert patched.status == 200, patched
    eventually(lambda: logs(client, name, "debug").strip() != "", "the report of the ephemeral container")
    reports["debug"] = json.loads(logs(client, name, "debug"))
    for report in (reports["init"], reports["debug"]):
        for namespace in OWN_NAMESPACES:
            report["namespaces"][namespace] = reports["main"]["namespaces"][namespace]
        report["cgroups"] = reports["main"]["cgroups"]
    if os.geteuid() != 0 and "runAsUser" in SECURITY[kind]:
        # An ordinary user has one identity; each process maps it to the number in a user namespace of its own.
        for report in reports.values():
            del report["namespaces"]["user"]
    different = {
        process: {
            field: (report[field], reports["main"][field])
            for field in report
            if report[field] != reports["main"][field]
        }
        for process, report in reports.items()
    }
    assert {process: fields for process, fields in different.items() if fields} == {}
    assert reports["main"]["descriptors"] == ["0", "1", "2"]
