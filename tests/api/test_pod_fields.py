"""The table of pod fields: complete, shown in the documentation, and searched as the paths say."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torchyard.api.objects import Object
from torchyard.api.pod.field_support import (
    RUNGS,
    SUBTREE,
    FieldSupport,
    Rung,
    SupportTable,
    expanded_paths,
)
from torchyard.api.pod.fields import POD_FIELDS
from torchyard.api.pod.strategy import drop_disabled_fields
from torchyard.api.pod.warnings import pod_warnings
from torchyard.api.schema import builtin
from torchyard.api.schema.types import Type

ROOT = Path(__file__).parent.parent.parent


def schema_paths(type: Type, at: str = "") -> Iterator[str]:
    """The paths of all scalars below a type."""
    if type.shape == "list" and type.items is not None:
        yield from schema_paths(type.items, f"{at}[]")
    elif type.shape == "map":
        yield f"{at}{{}}"
    elif type.fields:
        for name, field in type.fields.items():
            yield from schema_paths(field, f"{at}.{name}" if at else name)
    else:
        yield at


ALL_PATHS = sorted(schema_paths(builtin.definition("io.k8s.api.core.v1.PodSpec")))
ROW_PATHS = {path for row in POD_FIELDS.rows for path in expanded_paths(row.path)}


def covering_row(path: str) -> str | None:
    if path in ROW_PATHS:
        return path
    covering = (row for row in ROW_PATHS if row.endswith(SUBTREE))
    return next((row for row in covering if path.startswith((row.removesuffix(SUBTREE),))), None)


def test_every_field_of_a_pod_spec_has_a_row() -> None:
    assert len(ALL_PATHS) > 800
    assert [path for path in ALL_PATHS if covering_row(path) is None] == []


def test_every_row_is_about_a_field_of_a_pod_spec() -> None:
    prefixes = {path[: len(row.removesuffix(SUBTREE))] for path in ALL_PATHS for row in ROW_PATHS}
    only_ephemeral = "targetContainerName"
    unknown = {row for row in ROW_PATHS if row.removesuffix(SUBTREE) not in prefixes and only_ephemeral not in row}
    # the three kinds of containers share their rows; ephemeral containers lack a few fields
    assert unknown == set()


def test_rows_that_refuse_or_ignore_say_why() -> None:
    assert [
        row.path for row in POD_FIELDS.rows if {row.engine, row.sandbox, row.process} != {"yes"} and not row.note
    ] == []


def test_the_page_shows_the_table(tmp_path: Path) -> None:
    generated = tmp_path / "pods.md"
    subprocess.run([sys.executable, str(ROOT / "tools" / "generate_pod_fields.py"), str(generated)], check=True)
    assert generated.read_text() == (ROOT / "docs" / "pods.md").read_text(), "run `make reference`"


def sample_value(row: FieldSupport, type: Type) -> Any:
    """A value of the field that the row is about."""
    if row.values:
        return row.values[0]
    if row.applies is not None and type.shape == "string":
        return "HugePages-2Mi"
    if type.shape in ("list", "map", "object"):
        return [{}] if type.shape == "list" else {"a": "1"}
    return {"boolean": True not in row.unset, "integer": 8080}.get(type.shape, "x")


def sample_spec(row: FieldSupport, path: str) -> Object:
    """The smallest spec that sets the field of a row."""
    spec: Object = {}
    holder, type = spec, builtin.definition("io.k8s.api.core.v1.PodSpec")
    parts = path.removesuffix(SUBTREE).removesuffix("{}").split(".")
    for index, part in enumerate(parts):
        name, element = part.removesuffix("[]"), part.endswith("[]")
        type = type.fields[name]
        if element:
            assert type.items is not None
            type = type.items
        last = index == len(parts) - 1
        value = sample_value(row, type) if last else {}
        if last and type.shape == "object":
            value = {next(iter(type.fields)): "x"}
        holder[name] = [value] if element else value
        holder = value
    return spec


UNSUPPORTED = [
    pytest.param(row, path, rung, id=f"{path}{row.values}-{rung}")
    for row in POD_FIELDS.rows
    for path in expanded_paths(row.path)
    for rung in RUNGS
    if row.on(rung) != "yes" and not ("ephemeralContainers" in path and "restartPolicyRules" in path)
]


@pytest.mark.parametrize(("row", "path", "rung"), UNSUPPORTED)
def test_a_field_that_is_not_honoured_is_named(row: FieldSupport, path: str, rung: Rung) -> None:
    fields = POD_FIELDS.unsupported(sample_spec(row, path), rung)
    at = "spec." + path.removesuffix(SUBTREE).removesuffix("{}").replace("[]", "[0]")
    assert (at, row.on(rung), row.note) in [(field.at, field.support, field.note) for field in fields]
    assert all(str(field).startswith(f"{field.at}: ") for field in fields)


@pytest.mark.parametrize("rung", ["sandbox", "engine"])
def test_an_ordinary_pod_has_no_unsupported_fields(rung: Rung) -> None:
    spec = {
        "containers": [
            {
                "name": "main",
                "image": "busybox",
                "securityContext": {"privileged": False, "allowPrivilegeEscalation": True, "runAsUser": 0},
                "volumeMounts": [{"name": "data", "mountPath": "/data", "mountPropagation": "None"}],
                "ports": [{"containerPort": 80}],
            }
        ],
        "volumes": [{"name": "data", "emptyDir": {}}],
        "hostUsers": True,
        "os": {"name": "linux"},
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}, "appArmorProfile": {"type": "Unconfined"}},
        "topologySpreadConstraints": [],
    }
    assert POD_FIELDS.unsupported(spec, rung) == []


def test_many_occurrences_of_a_field_make_one_text() -> None:
    table = SupportTable([FieldSupport("containers[].tty", sandbox="ignored", note="there are no terminals")])
    spec = {"initContainers": [{"tty": True}], "containers": [{"tty": True}] * 1000}
    texts = [str(field) for field in table.unsupported(spec, "sandbox")]
    assert texts == ["spec.containers[0].tty: has no effect on this node: there are no terminals (set in 1001 places)"]


def test_values_that_look_like_unset_ones_are_not() -> None:
    table = SupportTable([FieldSupport("securityContext.runAsUser", sandbox="ignored", note="x")])
    assert len(table.unsupported({"securityContext": {"runAsUser": 0}}, "sandbox")) == 1


def test_fields_behind_disabled_gates_are_dropped_as_kube_apiserver_drops_them() -> None:
    spec: Object = {
        "hostnameOverride": "x",
        "containers": [{"name": "a", "lifecycle": {"stopSignal": "SIGUSR1"}}, {"name": "b", "lifecycle": {}}],
        "volumes": [
            {
                "name": "v",
                "projected": {"sources": [{"clusterTrustBundle": {"path": "c"}}, {"podCertificate": {"keyType": "x"}}]},
            }
        ],
    }
    drop_disabled_fields(spec)
    assert spec == {
        "containers": [{"name": "a"}, {"name": "b", "lifecycle": {}}],
        "volumes": [{"name": "v", "projected": {"sources": [{}, {}]}}],
    }
    warnings = pod_warnings({"metadata": {}, "spec": spec})
    assert set(warnings) == {'volume "v" (Projected) has no sources provided'}
