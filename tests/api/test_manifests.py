"""Reading valid and damaged manifests."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.kubernetes import ROOT

from torchyard.api.manifests import ManifestError, find_misplaced_lines, read

# The gloo demo as printed in its document.
PRINTED = """\
apiVersion: "kubeflow.org/v1"
kind: "PyTorchJob"
metadata:
name: "pytorch-dist-mnist-gloo-demo"
spec:
pytorchReplicaSpecs:
    Master:
    replicas: 1
    restartPolicy: OnFailure
    template:
        spec:
        containers:
            - name: pytorch
            image: kubeflow/pytorch-dist-mnist-test:1.0
            args: ["--backend", "gloo"]
            resources:
                limits:
                #  nvidia.com/gpu: 1
    Worker:
    replicas: 3
    restartPolicy: OnFailure
    template:
        spec:
        containers:
            - name: pytorch
            image: kubeflow/pytorch-dist-mnist-test:1.0
            args: ["--backend", "gloo"]
            resources:
                limits:
                #  nvidia.com/gpu: 1
"""


def test_lost_indentation_is_reported_with_its_line() -> None:
    with pytest.raises(ManifestError) as refused:
        read(PRINTED, "demo.yaml")
    assert refused.value.message.startswith(
        'demo.yaml has lost its indentation: line 4: "name" has the same indentation as "metadata" in line 3, '
        "but belongs below it"
    )
    assert refused.value.hint.startswith("indent line 4 and its block by 2 spaces")
    assert "line 6, 8, 12, 14, 20, 24, 26" in refused.value.hint


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("examples/*/*.yaml")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_a_valid_manifest_has_no_misplaced_lines(path: Path) -> None:
    text = path.read_text()
    assert read(text, "x")
    assert find_misplaced_lines(text) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "contains no objects"),
        ("a: 1\n\tb: 2", "line 2 is not valid YAML"),
        ("just words", "instead of an object"),
        ("apiVersion: v1\nmetadata: {name: a}", "kind is missing"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {}", "metadata.name is missing"),
        ("apiVersion: v1\nkind: Pod\nmetadata:\nname: a", 'line 4: "name" has the same indentation as "metadata"'),
    ],
)
def test_an_invalid_manifest_is_an_error_with_its_reason(text: str, words: str) -> None:
    with pytest.raises(ManifestError, match=words):
        read(text, "x.yaml")


def test_lists_and_multiple_documents_are_expanded() -> None:
    text = """
kind: List
apiVersion: v1
items:
- {apiVersion: v1, kind: Pod, metadata: {name: a}}
---
{apiVersion: batch/v1, kind: Job, metadata: {generateName: b-}}
"""
    assert [obj["kind"] for obj in read(text, "x")] == ["Pod", "Job"]


def test_the_items_of_a_typed_list_have_its_kind() -> None:
    objects = read("apiVersion: batch/v1\nkind: JobList\nitems: [{metadata: {name: a}}]\n", "a.yaml")
    assert objects == [{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}}]


def test_json_objects_that_follow_each_other_are_read() -> None:
    one = '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "%s"}}'
    assert [obj["metadata"]["name"] for obj in read(f"{one % 'a'}\n{one % 'b'}\n", "-")] == ["a", "b"]


def test_a_key_that_is_set_twice_is_refused() -> None:
    text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  nodeName: a\n  nodeName: b\n"
    with pytest.raises(ManifestError, match="line 6 is not valid YAML: the key nodeName is set twice"):
        read(text, "pod.yaml")
    merged = "apiVersion: v1\nkind: Pod\nmetadata: &m {name: a}\nspec: {<<: *m, name: b}\n"
    assert read(merged, "pod.yaml")[0]["spec"] == {"name": "b"}


def test_a_merged_key_may_be_set_again() -> None:
    text = """
apiVersion: v1
kind: ConfigMap
metadata: {name: a}
labels: &labels {tier: one}
templates:
  deep:
    base: &base
      <<: *labels
      tier: two
other:
  <<: *base
"""
    [obj] = read(text, "a file")
    assert obj["templates"]["deep"]["base"] == obj["other"] == {"tier": "two"}


def test_a_kustomization_is_named() -> None:
    with pytest.raises(ManifestError, match="is a kustomization") as raised:
        read("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: []\n", "k.yaml")
    assert raised.value.hint == "run `kubectl kustomize DIR | yard run -`"
