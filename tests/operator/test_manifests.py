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
FILES = ("torchyard.yaml", "chart/crds/pytorchjobs.yaml", "chart/templates/operator.yaml")


def generator() -> Any:
    spec = importlib.util.spec_from_file_location("generate_deploy", ROOT / "tools/generate_deploy.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", FILES)
def test_the_files_under_deploy_are_what_the_code_says(name: str, tmp_path: Path) -> None:
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
    plain = [one for one in objects(Installation(values["image"])) if one["kind"] != "Namespace"]
    assert list(yaml.safe_load_all(text)) == plain


def test_manifests_survive_being_written_and_read() -> None:
    made = [*definitions(), *objects(Installation("image"))]
    assert list(yaml.load_all(as_yaml(made), Loader=yaml.CSafeLoader)) == made


def test_the_operator_may_read_no_secret_but_its_own() -> None:
    found = objects(Installation("image"))
    cluster = next(one for one in found if one["kind"] == "ClusterRole" and one["metadata"]["name"] == NAME)
    assert not any("secrets" in rule["resources"] for rule in cluster["rules"])
    assert not any("*" in (*rule["apiGroups"], *rule["resources"], *rule["verbs"]) for rule in cluster["rules"])
    own = next(one for one in found if one["kind"] == "Role")
    reading = [rule for rule in own["rules"] if "secrets" in rule["resources"] and "get" in rule["verbs"]]
    assert [rule["resourceNames"] for rule in reading] == [[f"{NAME}-webhook"]]


def test_the_pod_meets_the_restricted_standard_that_its_namespace_enforces() -> None:
    deployment = next(one for one in objects(Installation("image")) if one["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_gang_scheduler_brings_the_rights_and_the_flag_for_its_groups() -> None:
    found = objects(Installation("image", gang_scheduler="volcano"))
    cluster = next(one for one in found if one["kind"] == "ClusterRole" and one["metadata"]["name"] == NAME)
    assert any(rule["apiGroups"] == ["scheduling.volcano.sh"] for rule in cluster["rules"])
    deployment = next(one for one in found if one["kind"] == "Deployment")
    assert "--gang-scheduler-name=volcano" in deployment["spec"]["template"]["spec"]["containers"][0]["args"]
