"""What an installation consists of: one source for `yard install`, the plain manifests and the chart."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import yaml

from torchyard.operator.manifests import Installation, as_yaml, definitions, objects
from torchyard.operator.settings import NAME, NAMESPACE

ROOT = Path(__file__).parents[2]
FILES = (
    "torchyard.yaml",
    "chart/crds/jobsets.yaml",
    "chart/crds/pytorchjobs.yaml",
    "chart/templates/operator.yaml",
    "chart/templates/queues.yaml",
)


def generator() -> Any:
    spec = importlib.util.spec_from_file_location("generate_deploy", ROOT / "tools/generate_deploy.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", FILES)
def test_the_files_under_deploy_equal_the_generated_manifests(name: str, tmp_path: Path) -> None:
    generator().main(tmp_path)
    assert (ROOT / "deploy" / name).read_text() == (tmp_path / name).read_text(), "run tools/generate_deploy.py"


def test_the_chart_differs_from_the_manifests_only_in_its_values() -> None:
    text = (ROOT / "deploy/chart/templates/operator.yaml").read_text()
    values = yaml.safe_load((ROOT / "deploy/chart/values.yaml").read_text())
    for mark, value in (
        ("{{ .Values.image }}", values["image"]),
        ("{{ .Values.replicas }}", str(values["replicas"])),
        ("{{ .Release.Namespace }}", NAMESPACE),
    ):
        assert mark in text
        text = text.replace(mark, value)
    plain = [obj for obj in objects(Installation(values["image"])) if obj["kind"] != "Namespace"]
    assert list(yaml.safe_load_all(text)) == plain


def test_manifests_survive_a_yaml_round_trip() -> None:
    manifests = [*definitions(), *objects(Installation("image"))]
    assert list(yaml.load_all(as_yaml(manifests), Loader=yaml.CSafeLoader)) == manifests


def test_the_operator_can_read_only_its_own_secret() -> None:
    manifests = objects(Installation("image"))
    cluster = next(item for item in manifests if item["kind"] == "ClusterRole" and item["metadata"]["name"] == NAME)
    others = [rule["verbs"] for rule in cluster["rules"] if "secrets" in rule["resources"]]
    assert others == [["create"]], "it creates the tokens of elastic jobs, and reads none"
    assert not any("*" in (*rule["apiGroups"], *rule["resources"], *rule["verbs"]) for rule in cluster["rules"])
    own = next(item for item in manifests if item["kind"] == "Role")
    reading = [rule for rule in own["rules"] if "secrets" in rule["resources"] and "get" in rule["verbs"]]
    assert [rule["resourceNames"] for rule in reading] == [[f"{NAME}-webhook"]]


def test_the_pod_meets_the_restricted_standard_that_its_namespace_enforces() -> None:
    deployment = next(obj for obj in objects(Installation("image")) if obj["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_gang_scheduler_adds_permissions_and_a_flag() -> None:
    manifests = objects(Installation("image", gang_scheduler="volcano"))
    cluster = next(item for item in manifests if item["kind"] == "ClusterRole" and item["metadata"]["name"] == NAME)
    assert any(rule["apiGroups"] == ["scheduling.volcano.sh"] for rule in cluster["rules"])
    deployment = next(item for item in manifests if item["kind"] == "Deployment")
    assert "--gang-scheduler-name=volcano" in deployment["spec"]["template"]["spec"]["containers"][0]["args"]


def test_without_progress_the_operator_may_not_read_logs_or_review_tokens() -> None:
    granted = {}
    for flag, installation in {
        "": Installation("image", trainjobs=False),
        "--no-log-progress": Installation("image", trainjobs=False, log_progress=False),
        "--no-progress": Installation("image", trainjobs=False, progress=False),
    }.items():
        manifests = objects(installation)
        (deployment,) = (item for item in manifests if item["kind"] == "Deployment")
        arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
        assert [each for each in arguments if "progress" in each] == ([flag] if flag else [])
        (role,) = (each for each in manifests if each["kind"] == "ClusterRole" and each["metadata"]["name"] == NAME)
        pairs = {(name, verb) for rule in role["rules"] for name in rule["resources"] for verb in rule["verbs"]}
        granted[flag] = pairs & {("pods/log", "get"), ("jobs", "patch"), ("tokenreviews", "create")}
    assert granted == {
        "": {("pods/log", "get"), ("jobs", "patch")},
        "--no-log-progress": {("jobs", "patch")},
        "--no-progress": set(),
    }
    ports = [
        item["spec"]["ports"] for item in objects(Installation("image", progress=False)) if item["kind"] == "Service"
    ]
    assert "status" not in {port["name"] for each in ports for port in each}


def test_curves_are_read_through_one_port_and_kept_on_a_claim() -> None:
    manifests = objects(Installation("image", samples_claim="curves", watched=("a",)))
    (role,) = (each for each in manifests if each["kind"] == "Role" and each["metadata"]["name"] == f"{NAME}-samples")
    assert role["metadata"]["namespace"] == NAMESPACE
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["services/proxy"], "verbs": ["get"], "resourceNames": [f"{NAME}:samples"]}
    ]
    (deployment,) = (each for each in manifests if each["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (mount,) = (each["mountPath"] for each in container["volumeMounts"] if each["name"] == "samples")
    assert f"--samples-directory={mount}" in container["args"] and pod["securityContext"]["fsGroup"] == 65532
    assert {"name": "samples", "persistentVolumeClaim": {"claimName": "curves"}} in pod["volumes"]
    without = objects(Installation("image", samples=False))
    text = as_yaml(without)
    assert "--no-samples" in text and "metrics.k8s.io" not in text and f"{NAME}-samples" not in text


def test_watched_namespaces_get_roles_and_the_cluster_role_only_has_webhooks_and_runtimes() -> None:
    manifests = objects(Installation("image", watched=("a", NAMESPACE)))
    cluster = next(item for item in manifests if item["kind"] == "ClusterRole" and item["metadata"]["name"] == NAME)
    assert {name for rule in cluster["rules"] for name in rule["resources"]} == {
        "validatingwebhookconfigurations",
        "mutatingwebhookconfigurations",
        "clustertrainingruntimes",
        "tokenreviews",
    }
    roles = {
        item["metadata"]["namespace"]: item
        for item in manifests
        if item["kind"] == "Role" and item["metadata"]["name"] == NAME
    }
    assert set(roles) == {"a", NAMESPACE}
    resources = {
        namespace: {name for rule in item["rules"] for name in rule["resources"]} for namespace, item in roles.items()
    }
    assert "pods" in resources["a"] and "leases" not in resources["a"]
    assert {"pods", "leases", "secrets"} <= resources[NAMESPACE]
    deployment = next(item for item in manifests if item["kind"] == "Deployment")
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert [argument for argument in arguments if argument.startswith("--namespace=")] == [
        "--namespace=a",
        f"--namespace={NAMESPACE}",
    ]
    webhook = next(item for item in manifests if item["kind"] == "ValidatingWebhookConfiguration")
    chosen = webhook["webhooks"][0]["namespaceSelector"]["matchExpressions"][0]
    assert chosen["values"] == ["a", NAMESPACE]


def test_only_jobs_with_a_queue_are_suspended_and_only_with_queues() -> None:
    plain = objects(Installation("image", jobsets=False, trainjobs=False))
    assert not any(obj["kind"] == "MutatingWebhookConfiguration" for obj in plain)
    manifests = objects(Installation("image", queues=True, jobsets=False, trainjobs=False))
    (webhook,) = [item for item in manifests if item["kind"] == "MutatingWebhookConfiguration"]
    (hook,) = webhook["webhooks"]
    assert hook["objectSelector"]["matchExpressions"] == [{"key": "kueue.x-k8s.io/queue-name", "operator": "Exists"}]
