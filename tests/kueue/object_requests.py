"""Sends the requests of `object_cases` to a server, the plane or a real Kubernetes with Kueue.

They are dry runs, so that none changes anything for the next.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.kueue.object_cases import Object, ObjectCase, patched, value_at
from tests.kueue.object_samples import SAMPLES, Sample
from tests.support.http import JSON_PATCH, Answer, Client

NAMESPACE = "objects"
_CONCURRENT = 6
_PLURALS = {
    "ClusterQueue": "clusterqueues",
    "Cohort": "cohorts",
    "ResourceFlavor": "resourceflavors",
    "AdmissionCheck": "admissionchecks",
    "WorkloadPriorityClass": "workloadpriorityclasses",
    "LocalQueue": f"namespaces/{NAMESPACE}/localqueues",
    "Workload": f"namespaces/{NAMESPACE}/workloads",
}
_denied = re.compile(r'^admission webhook "[a-z.]+" denied the request: ')
_invalid = re.compile(r'^[A-Za-z]+\.kueue\.x-k8s\.io "[^"]*" is invalid: ')
_DRY_RUN = {"dryRun": "All"}


def set_up(client: Client) -> None:
    """The objects that are updated."""
    _expect(client.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}))
    for name, sample in SAMPLES.items():
        spec = {field: value for field, value in sample.obj.items() if field != "status"}
        _expect(client.post(_path(sample), _named(sample, spec, name)))
        if "status" in sample.obj:
            _expect(client.patch(f"{_path(sample)}/{name}/status", {"status": sample.obj["status"]}))


def _expect(answer: Answer) -> None:
    if answer.status >= 400:
        raise AssertionError(str(answer))


def _path(sample: Sample) -> str:
    return f"/apis/kueue.x-k8s.io/{sample.version}/{_PLURALS[sample.kind]}"


def _named(sample: Sample, obj: Object, name: str) -> Object:
    metadata = {"name": name}
    return {"apiVersion": f"kueue.x-k8s.io/{sample.version}", "kind": sample.kind, "metadata": metadata, **obj}


def run_object_cases(client: Client, cases: Iterable[ObjectCase]) -> dict[str, Object]:
    """By key: whether the request was refused and why, or what would have been stored in the place that it changes."""

    def answer(case: ObjectCase) -> tuple[str, Object]:
        return case.key, _observation(case, _send(client, case))

    with ThreadPoolExecutor(_CONCURRENT) as pool:
        return dict(pool.map(answer, cases))


def _send(client: Client, case: ObjectCase) -> Answer:
    sample = SAMPLES[case.sample]
    obj = patched(sample.obj, case.patch)
    if case.verb == "create":
        return client.post(_path(sample), _named(sample, obj, "new"), query=_DRY_RUN)
    fields = ["status"] if case.verb == "status" else [field for field in sample.obj if field != "status"]
    patch: list[Object] = []
    for field in fields:
        change = {"op": "add", "path": f"/{field}", "value": obj[field]} if field in obj else None
        patch.append(change or {"op": "remove", "path": f"/{field}"})
    path = f"{_path(sample)}/{case.sample}" + ("/status" if case.verb == "status" else "")
    return client.patch(path, patch, JSON_PATCH, query=_DRY_RUN)


def _observation(case: ObjectCase, answer: Answer) -> Object:
    if answer.status < 400:
        value: Any = value_at(answer.json, case.patch[0]["path"])
        is_as_sent = case.patch[0]["op"] != "remove" and value == case.patch[0]["value"]
        return {} if is_as_sent else {"stored": value}
    causes = sorted({cause.get("field", "") for cause in answer.causes})
    return {"status": answer.status, "causes": causes, "message": _plain(answer.message)}


def _plain(message: str) -> str:
    return _invalid.sub("", _denied.sub("", message))
