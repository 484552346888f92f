"""The operator on a real API server makes of recorded TrainJobs what upstream's managers made. Full effort only.

The same recordings are compared with the pure functions in tests/trainjob. Statuses are compared in
tests/trainjob/test_lifecycles.py.
"""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.support.effort import FULL
from tests.support.kubernetes import Server
from tests.support.operator import Installed, running
from tests.support.waiting import eventually
from tests.trainjob.cases import CASES
from tests.trainjob.record import POD_GROUPS, observe
from tests.trainjob.test_recorded import ANSWERS, NOT_CHECKED, REFUSED_EARLIER, comparable

from torchyard.controllers.trainjob import RUNTIMES

Object = dict[str, Any]
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not FULL, reason="hundreds of objects on a real API server: TORCHYARD_TESTS=full"),
]
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OTHER_TEXTS = {
    "torch-processes-as-word": "upstream's webhook cannot decode it; here the schema is checked",
    "patch-env-of-node": "the fields of the patch that the message shows are in another order",
}
_COMPARED = ("runtime", "job", "jobset", "podgroups")


def pod_groups(server: Server) -> None:
    """Serve the PodGroups of scheduler-plugins and Volcano."""
    for path in POD_GROUPS.values():
        _, _, group, version = path.split("/")
        names = {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup", "listKind": "PodGroupList"}
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        versions = [{"name": version, "served": True, "storage": True, "schema": schema}]
        spec = {"group": group, "names": names, "scope": "Namespaced", "versions": versions}
        annotation = {"api-approved.kubernetes.io": "unapproved, for a test"}
        metadata = {"name": f"podgroups.{group}", "annotations": annotation}
        body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata}
        assert server.admin.post(_DEFINITIONS, {**body, "spec": spec}).status in (201, 409)
        eventually(lambda: server.admin.get(f"{path}/podgroups").status == 200, f"podgroups of {group}")  # noqa: B023


async def test_generated_trainjobs(installed: Installed, kube: Server) -> None:
    pod_groups(kube)
    names = [name for name in CASES if name in ANSWERS and name not in NOT_CHECKED and name not in REFUSED_EARLIER]
    async with running(installed, webhook=True, progress=False):
        await installed.until(lambda: installed.admin.find(RUNTIMES["ClusterTrainingRuntime"], "torchyard-elastic"))

        def all_answers() -> dict[str, Object]:
            with ThreadPoolExecutor(4) as pool:
                return dict(zip(names, pool.map(lambda name: observe(kube.admin, name), names), strict=True))

        answers = await asyncio.to_thread(all_answers)
    differing = {}
    for name in names:
        ours, theirs = comparable(name, answers[name], ANSWERS[name])
        if any(ours.get(key) != theirs.get(key) for key in _COMPARED):
            differing[name] = {
                key: {"upstream": theirs.get(key), "ours": ours.get(key)}
                for key in _COMPARED
                if ours.get(key) != theirs.get(key)
            }
    for name in OTHER_TEXTS:
        differing.pop(name)  # a case that is equal by now is to be removed from the list
    assert not differing, f"{len(differing)} of {len(names)}: {json.dumps(differing, indent=1)[:60000]}"
