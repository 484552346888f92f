"""The verdict of a real kube-apiserver on a case. Run as a program, it records the verdicts of all cases."""

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
from tests.support.waiting import TIMEOUT

from torchyard.api.objects import Object

T = TypeVar("T")
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def verdict(client: Client, name: str, case: Object) -> Object:
    first = cases.definition(name, case, loose=True) if "loose" in case else cases.definition(name, case)
    path = f"{DEFINITIONS}/{first['metadata']['name']}"
    response = client.post(DEFINITIONS, first)
    if response.status != 201:
        return {"definition": _rejected(response)}
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
    conditions = {condition["type"]: condition["status"] for condition in crd["status"].get("conditions") or ()}
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
    results: list[list[Object]] = [[] for _ in writes]
    for index, parts in enumerate(writes):
        if "loose" not in case:
            _write(client, objects, crd, parts, results[index])
            continue
        named = {**parts[0][1], "metadata": {"name": f"object{index}"}}
        _write(client, objects, crd, [("create", named)], results[index], keep=True)
    if "loose" in case:
        _tighten(client, path, objects, crd, writes)
        for index, parts in enumerate(writes):
            base = client.get(f"{objects}/object{index}").json
            _write(client, objects, crd, parts[1:], results[index], base=base)
    return results


def _tighten(client: Client, path: str, objects: str, crd: Object, writes: list[list[tuple[str, Object]]]) -> None:
    """Replace the CRD by the strict one, and wait until the server applies it."""
    strict = {**client.get(path).json, "spec": crd["spec"]}
    assert client.put(path, strict).status == 200
    bad = [cases.body(crd, {**parts[0][1], "metadata": {"name": "probe"}}) for parts in writes]
    _wait(lambda: any(client.post(f"{objects}?dryRun=All", obj).status == 422 for obj in bad))


def _write(
    client: Client,
    path: str,
    crd: Object,
    parts: list[tuple[str, Object]],
    results: list[Object],
    *,
    base: Object | None = None,
    keep: bool = False,
) -> None:
    for verb, content in parts:
        sent = cases.body(crd, content, base)
        name = sent["metadata"]["name"]
        if verb == "create":
            response = client.post(path, sent)
        else:
            response = client.put(f"{path}/{name}/status" if verb == "status" else f"{path}/{name}", sent)
        if response.status not in (200, 201):
            results.append(_rejected(response))
            break
        base = response.json
        results.append(cases.taken(response.status, dict(response.json), response.warnings))
    if base is not None and not keep:
        client.delete(f"{path}/{base['metadata']['name']}")


def _rejected(response: Answer) -> Object:
    return cases.rejected(response.status, response.reason, response.message, response.causes)


def _wait(condition: Callable[[], T | None]) -> T:
    """The first true result of a function. A machine that is busy with other work may take a minute for a deletion."""
    deadline = time.monotonic() + TIMEOUT
    while not (result := condition()):
        assert time.monotonic() < deadline, f"the server did not get there in {TIMEOUT:.0f} s"
        time.sleep(0.02)
    return result


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, Kubernetes(Path(directory)) as server:
        verdicts = {name: verdict(server.admin, name, case) for name, case in cases.load().items()}
    cases.RECORDED.write_text(json.dumps(verdicts, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
