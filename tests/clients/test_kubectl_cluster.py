"""kubectl on nodes and on custom resources."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from tests.clients.manifests import POD, custom, definition
from tests.support.kubectl import Kubectl
from tests.support.kubernetes import Server


@pytest.fixture
def node(k: Kubectl, server: Server) -> Iterator[str]:
    """A Node object without a kubelet."""
    name = f"node-{k.namespace}"
    assert server.admin.post("/api/v1/nodes", {"metadata": {"name": name}}).status == 201
    yield name
    server.admin.delete(f"/api/v1/nodes/{name}")


def test_taint_cordon_and_describe_a_node(k: Kubectl, node: str) -> None:
    assert k("taint", "node", node, "gpu=yes:NoSchedule") == f"node/{node} tainted\n"
    assert k("taint", "node", node, "gpu:NoSchedule-") == f"node/{node} untainted\n"
    assert k("cordon", node) == f"node/{node} cordoned\n"
    assert "SchedulingDisabled" in k("get", "node", node)
    assert k("cordon", node) == f"node/{node} already cordoned\n"
    assert k("uncordon", node) == f"node/{node} uncordoned\n"
    description = k("describe", "node", node)
    assert re.search(rf"Name:\s+{node}\n", description)
    assert re.search(r"Unschedulable:\s+false", description)
    k("label", "node", node, "node-role.kubernetes.io/worker=")
    assert re.search(rf"{node}\s+\S+\s+worker", k("get", "nodes"))


def test_drain_evicts_pods(k: Kubectl, node: str, server: Server) -> None:
    bound = POD.replace("spec:\n", f"spec:\n  nodeName: {node}\n", 1)
    owner = "  ownerReferences: [{apiVersion: batch/v1, kind: Job, name: j, uid: UID, controller: true}]\n"
    k("create", "job", "j", "--image=busybox", "--", "true")
    uid = k("get", "job", "j", "-o", "jsonpath={.metadata.uid}")
    k("create", "-f", "-", stdin=bound.replace("  labels:", owner.replace("UID", uid) + "  labels:"))
    assert (
        server.admin.patch(
            f"/api/v1/namespaces/{k.namespace}/pods/p1/status", {"status": {"phase": "Succeeded"}}
        ).status
        == 200
    )
    output = k("drain", node, "--timeout=30s", "--ignore-daemonsets")
    assert f"node/{node} drained" in output
    assert k("get", "pods", "-o", "name") == ""
    assert "SchedulingDisabled" in k("get", "node", node)


@pytest.fixture
def gadgets(k: Kubectl, server: Server) -> Iterator[str]:
    """A custom resource of this test's own."""
    plural = f"g{k.namespace.removeprefix('kubectl-')}s"
    assert "created" in k("apply", "-f", "-", stdin=definition(plural))
    name = f"{plural}.clients.torchyard.dev"
    assert "condition met" in k("wait", "--for=condition=established", f"crd/{name}", "--timeout=30s")
    yield plural
    server.admin.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")


def test_custom_resources_are_found_and_handled(k: Kubectl, gadgets: str) -> None:
    assert "created" in k("apply", "-f", "-", stdin=custom(gadgets))
    assert "unchanged" in k("apply", "-f", "-", stdin=custom(gadgets))
    assert "configured" in k("apply", "-f", "-", stdin=custom(gadgets, color="blue"))
    table = k("get", gadgets)
    assert table.splitlines()[0].split() == ["NAME", "REPLICAS"]
    assert table.splitlines()[1].split() == ["c1", "1"]
    assert "Color:" in k("describe", gadgets, "c1")
    assert "scaled" in k("scale", f"{gadgets}/c1", "--replicas=4")
    assert k("get", gadgets, "c1", "-o", "jsonpath={.spec.replicas}") == "4"
    assert "labeled" in k("label", gadgets, "c1", "a=b")
    assert "patched" in k("patch", gadgets, "c1", "--type=merge", "-p", '{"spec":{"color":"red"}}')
    error_output = k.fails("patch", gadgets, "c1", "--type=strategic", "-p", '{"spec":{"color":"red"}}')
    assert "application/strategic-merge-patch+json is not supported by clients.torchyard.dev/v1" in error_output
    assert "/c1\n" in k("get", f"{gadgets}-family", "-o", "name")
    side = k("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=custom(gadgets, "c2"))
    assert "serverside-applied" in side
    assert re.search(r"replicas\s+<integer>", k("explain", f"{gadgets}.spec"))
    assert "how many" in k("explain", f"{gadgets}.spec.replicas")
    wrong = k.fails("apply", "-f", "-", stdin=custom(gadgets, "c3", "green"))
    assert 'spec.color: Unsupported value: "green": supported values: "red", "blue"' in wrong
    unknown = k.fails("create", "-f", "-", stdin=custom(gadgets, "c3") + "  shape: round\n")
    assert 'unknown field "spec.shape"' in unknown
    assert '"c1" deleted' in k("delete", gadgets, "c1")
    assert json.loads(k("get", gadgets, "-o", "json"))["items"][0]["metadata"]["name"] == "c2"


def test_get_watch_of_custom_resources_and_wait_for_a_field(k: Kubectl, gadgets: str) -> None:
    k("create", "-f", "-", stdin=custom(gadgets))
    waiting = k.start("wait", "--for=jsonpath={.status.phase}=Done", f"{gadgets}/c1", "--timeout=30s")
    patch = '{"status":{"phase":"Done"}}'
    k("patch", gadgets, "c1", "--subresource=status", "--type=merge", "-p", patch)
    assert "condition met" in waiting.communicate(timeout=30)[0]
