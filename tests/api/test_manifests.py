"""Manifests as people write and damage them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.kubernetes import ROOT

from torchyard.api.manifests import ManifestError, find_misplaced_lines, read

# The gloo demo as its document prints it.
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


def test_the_printed_demo_is_told_which_line_is_the_likely_cause() -> None:
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
def test_a_whole_manifest_is_read_and_nothing_in_it_is_suspected(path: Path) -> None:
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
def test_a_damaged_manifest_is_explained(text: str, words: str) -> None:
    with pytest.raises(ManifestError, match=words):
        read(text, "x.yaml")


def test_lists_and_several_documents_are_taken_apart() -> None:
    text = """
kind: List
apiVersion: v1
items:
- {apiVersion: v1, kind: Pod, metadata: {name: a}}
---
{apiVersion: batch/v1, kind: Job, metadata: {generateName: b-}}
"""
    assert [one["kind"] for one in read(text, "x")] == ["Pod", "Job"]
