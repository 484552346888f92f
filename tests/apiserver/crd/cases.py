"""The CRDs and objects that are tried on Torchyard's server and a real one, and the form of a verdict."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path

import yaml

from torchyard.api.objects import Object

HERE = Path(__file__).parent
RECORDED = HERE / "verdicts.json"
GROUP = "example.com"


def load() -> dict[str, Object]:
    """Every case by its name, `file: name`."""
    loaded: dict[str, Object] = {}
    for path in sorted((HERE / "cases").glob("*.yaml")):
        for case in yaml.safe_load(path.read_text()):
            name = f"{path.stem}: {case['name']}"
            assert name not in loaded, name
            loaded[name] = case
    return loaded


def recorded() -> dict[str, Object]:
    """The recorded verdicts of the real server."""
    return dict(json.loads(RECORDED.read_text()))


def definition(name: str, case: Object, *, loose: bool = False) -> Object:
    """The definition of a case; `loose` is the one before it was tightened."""
    plural = "".join(letter for letter in name.title() if letter.isalnum())
    fields = case["loose"] if loose else case.get("spec") or {"a": {"type": "string"}}
    schema = case.get("schema") or _spec_schema(fields, [] if loose else case.get("rules") or [])
    plain = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    versions = [_merged({**plain, "storage": False}, version) for version in case.get("versions") or ()]
    crd: Object = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": f"{plural.lower()}s"[-40:], "singular": plural.lower()[-40:], "kind": plural},
            "versions": versions or [_merged(plain, case.get("version") or {})],
        },
    }
    crd = _merged(crd, case.get("definition") or {})
    group = crd["spec"].get("group") or GROUP
    crd["metadata"].setdefault("name", f"{crd['spec']['names']['plural']}.{group}")
    return crd


def _spec_schema(properties: Object, rules: list[Object]) -> Object:
    spec = {"type": "object", "properties": properties, **({"x-kubernetes-validations": rules} if rules else {})}
    return {"type": "object", "properties": {"spec": spec}}


def _merged(base: Object, patch: Object) -> Object:
    """A JSON merge patch."""
    result = copy.deepcopy(base)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = _merged(result[key], value)
        else:
            result[key] = copy.deepcopy(value)
    return result


def steps(write: Object) -> list[tuple[str, Object]]:
    """What is done with an object in turn: create, then status, then update."""
    if "create" not in write:
        return [("create", write)]
    return [(verb, write[verb]) for verb in ("create", "status", "update") if verb in write]


def body(crd: Object, content: Object, base: Object | None = None) -> Object:
    """The object a client sends: the content, with the metadata of the object it saw."""
    metadata = {"name": "object", **((base or {}).get("metadata") or {})}
    sent = copy.deepcopy(content)
    metadata = {**metadata, **(sent.pop("metadata", None) or {})}
    version = crd["spec"]["versions"][0]["name"]
    return {
        "apiVersion": f"{crd['spec']['group']}/{version}",
        "kind": crd["spec"]["names"]["kind"],
        "metadata": metadata,
        **sent,
    }


def rejected(code: int, reason: str, message: str, causes: list[Object]) -> Object:
    """A rejection; its causes are sorted, because Go iterates over maps in any order."""
    verdict: Object = {"code": code, "reason": reason}
    if causes:
        # the real server numbers the types of objects at random
        verdict["causes"] = sorted(
            [c.get("reason", ""), c.get("field", ""), re.sub(r"selfType\d+", "selfType", c["message"])] for c in causes
        )
    else:
        verdict["message"] = message
    return verdict


def taken(code: int, obj: Object, warnings: list[str]) -> Object:
    """An object as it was stored."""
    metadata = obj.get("metadata") or {}
    content = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata")}
    verdict: Object = {"code": code, "object": content, "generation": metadata.get("generation")}
    if metadata.get("labels"):
        verdict["labels"] = metadata["labels"]
    if warnings:
        verdict["warnings"] = sorted(warnings)
    return verdict


def established(crd: Object) -> Object:
    """A definition as it was accepted, without its times."""
    status = copy.deepcopy(crd["status"])
    for condition in status["conditions"]:
        del condition["lastTransitionTime"]
    status["conditions"].sort(key=lambda condition: str(condition["type"]))
    return {"code": 201, "names": crd["spec"]["names"], "conversion": crd["spec"]["conversion"], "status": status}
