"""What a real kube-apiserver says of a case. Run as a program, it records the verdicts of all of them."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests.apiserver.crd import cases
from tests.support.http import Answer, Client
from tests.support.kubernetes import Kubernetes

from torchyard.api.objects import Object

T = TypeVar("T")
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def verdict(client: Client, name: str, case: Object) -> Object:
    first = cases.definition(name, case, loose=True) if "loose" in case else cases.definition(name, case)
    path = f"{DEFINITIONS}/{first['metadata']['name']}"
    answer = client.post(DEFINITIONS, first)
    if answer.status != 201:
        return {"definition": _refused(answer)}
    try:
        crd = _wait(lambda: _settled(client.get(path).json))
        result: Object = {"definition": cases.established(crd)}
        if case.get("objects"):
            result["objects"] = _writes(client, name, case, path)
        return result
    finally:
        client.delete(path)
        _wait(lambda: client.get(path).status == 404)


def _settled(crd: Object) -> Object | None:
    conditions = {one["type"]: one["status"] for one in crd["status"].get("conditions") or ()}
    protected = crd["spec"]["group"].endswith("k8s.io")
    is_done = "Established" in conditions and (
        conditions["Established"] == "True" or conditions["NamesAccepted"] != "True"
    )
    return crd if is_done and (not protected or len(conditions) == 3) else None


def _writes(client: Client, name: str, case: Object, path: str) -> list[list[Object]]:
    crd = cases.definition(name, case)
    version, plural = crd["spec"]["versions"][0]["name"], crd["spec"]["names"]["plural"]
    objects = f"/apis/{crd['spec']['group']}/{version}/namespaces/default/{plural}"
    _wait(lambda: client.get(objects).status == 200)
    writes = [cases.steps(write) for write in case["objects"]]
    said: list[list[Object]] = [[] for _ in writes]
    for index, parts in enumerate(writes):
        if "loose" not in case:
            _write(client, objects, crd, parts, said[index])
            continue
        named = {**parts[0][1], "metadata": {"name": f"object{index}"}}
        _write(client, objects, crd, [("create", named)], said[index], keep=True)
    if "loose" in case:
        _tighten(client, path, objects, crd, writes)
        for index, parts in enumerate(writes):
            base = client.get(f"{objects}/object{index}").json
            _write(client, objects, crd, parts[1:], said[index], base=base)
    return said


def _tighten(client: Client, path: str, objects: str, crd: Object, writes: list[list[tuple[str, Object]]]) -> None:
    """Replace the definition by the strict one, and wait until the server goes by it."""
    strict = {**client.get(path).json, "spec": crd["spec"]}
    assert client.put(path, strict).status == 200
    bad = [cases.body(crd, {**parts[0][1], "metadata": {"name": "probe"}}) for parts in writes]
    _wait(lambda: any(client.post(f"{objects}?dryRun=All", one).status == 422 for one in bad))


def _write(
    client: Client,
    path: str,
    crd: Object,
    parts: list[tuple[str, Object]],
    said: list[Object],
    *,
    base: Object | None = None,
    keep: bool = False,
) -> None:
    for verb, content in parts:
        sent = cases.body(crd, content, base)
        name = sent["metadata"]["name"]
        if verb == "create":
            answer = client.post(path, sent)
        else:
            answer = client.put(f"{path}/{name}/status" if verb == "status" else f"{path}/{name}", sent)
        if answer.status not in (200, 201):
            said.append(_refused(answer))
            break
        base = answer.json
        said.append(cases.taken(answer.status, dict(answer.json), answer.warnings))
    if base is not None and not keep:
        client.delete(f"{path}/{base['metadata']['name']}")


def _refused(answer: Answer) -> Object:
    return cases.refused(answer.status, answer.reason, answer.message, answer.causes)


def _wait(look: Callable[[], T | None]) -> T:
    for _ in range(400):
        if found := look():
            return found
        time.sleep(0.02)
    raise AssertionError("the server did not get there in time")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, Kubernetes(Path(directory)) as server:
        said = {name: verdict(server.admin, name, case) for name, case in cases.load().items()}
    cases.RECORDED.write_text(json.dumps(said, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
