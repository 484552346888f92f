"""The chart with Helm itself: linted, rendered, installed on a real API server, upgraded and removed.

Helm comes as a library in the package `helm-python-sdk` and runs in a separate process.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.kubernetes import Server
from tests.support.operator import Installed

from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import CLUSTER_ROLES
from torchyard.api.objects import Object
from torchyard.api.pytorchjob.crd import CRD_NAME
from torchyard.operator.certificates import MUTATING, VALIDATING
from torchyard.operator.install import DEFINITIONS, uninstall
from torchyard.operator.manifests import Installation, objects
from torchyard.operator.settings import DEFAULTS_WEBHOOK, NAME, WEBHOOK

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("helm_python") is None, reason="no Helm here: pip install helm-python-sdk"
)
CHART = Path(__file__).parents[2] / "deploy" / "chart"
DEPLOYMENTS = GroupVersionResource("apps", "v1", "deployments")
SPACE, RELEASE = "by-helm", "yard"


def helm(work: str, **arguments: Any) -> Any:
    """The value of an expression over `helm` (the library) and `arguments`."""
    program = "import json, sys, helm_python as helm; arguments = json.load(sys.stdin)\n" + work
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps({"chart": str(CHART), **arguments}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def release(kube: Server, verb: str, *words: Any) -> Object:
    work = (
        "with helm.Config(kubeconfig_path=arguments['kubeconfig'], namespace=arguments['space']) as config:\n"
        "    print(json.dumps(getattr(config, arguments['verb'])(*arguments['words'])))"
    )
    answer: Object = helm(work, kubeconfig=str(kube.kubeconfig), space=SPACE, verb=verb, words=words)
    return answer


def test_the_chart_passes_helm_lint() -> None:
    report = helm("print(json.dumps(helm.lint(arguments['chart'], strict=True)))")
    assert report["errors"] == [] and not [message for message in report["messages"] if message["severity"] > 1], report


@pytest.mark.parametrize("queues", [False, True], ids=["alone", "with Kueue"])
def test_the_rendered_chart_equals_what_yard_install_applies(queues: bool) -> None:
    values: Object = {"image": "registry.example.com/operator:1", "replicas": 3, "queues": queues}
    work = (
        "with helm.Chart.load(arguments['chart']) as chart:\n"
        "    print(json.dumps(chart.render(arguments['values'], name=arguments['name'], namespace=arguments['space'])))"
    )
    files = helm(work, values=values, name=RELEASE, space=SPACE)
    rendered = [item for text in files.values() for item in yaml.safe_load_all(text) if item]
    to = Installation(values["image"], SPACE, replicas=3, queues=queues)
    wanted = [obj for obj in objects(to) if obj["kind"] != "Namespace"]  # Helm creates it on request

    def key(obj: Object) -> tuple[str, str]:
        return obj["kind"], obj["metadata"]["name"]

    assert sorted(rendered, key=key) == sorted(wanted, key=key)


@pytest.mark.cluster
async def test_a_release_is_installed_upgraded_and_removed_and_leaves_the_definition(
    installed: Installed, kube: Server
) -> None:
    admin = installed.admin
    await uninstall(admin, installed.to, lambda _: None)  # Helm does not adopt objects of other owners
    await installed.namespace(SPACE)
    created = await asyncio.to_thread(release, kube, "install", str(CHART), RELEASE, {"replicas": 0})
    assert (created["revision"], created["status"]) == (1, "deployed")
    assert (await admin.get(DEPLOYMENTS, NAME, SPACE))["spec"]["replicas"] == 0
    changed = await asyncio.to_thread(
        release, kube, "upgrade", str(CHART), RELEASE, {"replicas": 0, "image": "operator:next", "queues": True}
    )
    assert (changed["revision"], changed["status"]) == (2, "deployed")
    pod = (await admin.get(DEPLOYMENTS, NAME, SPACE))["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "operator:next"
    assert await admin.find(CLUSTER_ROLES, f"{NAME}-queues") is not None
    await asyncio.to_thread(release, kube, "uninstall", RELEASE)
    assert await admin.find(DEPLOYMENTS, NAME, SPACE) is None
    assert await admin.find(VALIDATING, WEBHOOK) is None and await admin.find(MUTATING, DEFAULTS_WEBHOOK) is None
    assert await admin.find(DEFINITIONS, CRD_NAME) is not None, "and with it the jobs"
