"""The snapshot of a runtime: what is written can be read, and what a user wrote into it is checked."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from torchyard.api.errors import YardError
from torchyard.api.trainjob.runtimes import runtimes
from torchyard.core.trainjob.snapshot import make_snapshot, runtime_of

Object = dict[str, Any]
JOB: Object = {
    "metadata": {"name": "job", "namespace": "ns", "uid": "u"},
    "spec": {"runtimeRef": {"name": "torchyard-elastic"}},
}
RUNTIME = runtimes()[1]


def edited(text: str) -> Object:
    return {**make_snapshot(JOB, RUNTIME), "data": {"runtime": text}}


def changed(spec: Any, **metadata: Any) -> str:
    return yaml.safe_dump({**RUNTIME, "metadata": {**RUNTIME["metadata"], **metadata}, "spec": spec})


def test_the_runtime_comes_back_from_json_and_from_yaml() -> None:
    assert runtime_of(make_snapshot(JOB, RUNTIME), JOB) == RUNTIME
    assert runtime_of(edited(yaml.safe_dump(RUNTIME)), JOB) == RUNTIME


def test_aliases_are_refused_before_they_are_expanded() -> None:
    lines = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 40))]
    with pytest.raises(YardError, match="YAML aliases are not allowed"):
        runtime_of(edited("\n".join(lines)), JOB)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "neither JSON nor YAML"),
        ("a: 2026-99-99", "neither JSON nor YAML"),
        ("[" * 5000, "nested deeper than 128 levels"),
        ("a: b", "is the snapshot of another runtime"),
        (changed({"template": "x"}), "spec.template must be of type object"),
        (changed({"template": {"spec": {"replicatedJobs": [None]}}}), "replicatedJobs[0] must be of type object"),
        (changed({"template": {"spec": {"replicatedJobs": [{"template": {}}]}}}), "replicatedJobs[0].name is required"),
        (changed({"mlPolicy": {"numNodes": True}}), "spec.mlPolicy.numNodes must be of type integer"),
        (changed({"mlPolicy": {}}, annotations={"a": 1}), "metadata.annotations.a must be of type string"),
    ],
)
def test_content_that_is_not_a_runtime_is_refused(text: str, words: str) -> None:
    with pytest.raises(YardError) as raised:
        runtime_of(edited(text), JOB)
    assert words in str(raised.value)
