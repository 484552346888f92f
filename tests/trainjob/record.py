"""Runs the cases on upstream's Trainer and JobSet and writes what they answered into `recorded.json`.

    python -m tests.trainjob.record KUBECONFIG [NAME...]

The server of KUBECONFIG runs upstream's JobSet and Trainer managers, was started without other controllers, and served
the kinds in `POD_GROUPS` before the managers started. Without names all cases run.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.http import Client
from tests.support.kubernetes import from_kubeconfig
from tests.trainjob.cases import CASES, RUNTIME, Object

from torchyard.api.trainjob import names

RECORDED = Path(__file__).parent / "recorded.json"
TRAINER = "/apis/trainer.kubeflow.org/v1alpha1"
POD_GROUPS = {
    "coscheduling": "/apis/scheduling.x-k8s.io/v1alpha1",
    "volcano": "/apis/scheduling.volcano.sh/v1beta1",
}
_SERVER_FIELDS = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields")


def main() -> None:
    chosen = sys.argv[2:] or list(CASES)
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    with tempfile.TemporaryDirectory() as directory:
        client = from_kubeconfig("kube", Path(sys.argv[1]), Path(directory)).admin
        with ThreadPoolExecutor(2) as pool:
            recorded |= dict(zip(chosen, pool.map(lambda name: observe(client, name), chosen), strict=True))
    known = {name: recorded[name] for name in CASES if name in recorded}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(known[name], sort_keys=True)}" for name in sorted(known))
    RECORDED.write_text(f"{{\n{lines}\n}}\n")


def observe(client: Client, name: str) -> Object:
    """Create the objects of a case and return the refusal, or the objects that the controller made."""
    namespace = f"{name}-{int(time.time()) % 100000}"
    client.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
    case = json.loads(json.dumps(CASES[name]).replace(RUNTIME, f"{namespace}-runtime"))
    answer: Object = {}
    for runtime in case["runtimes"]:
        where = (
            f"namespaces/{namespace}/trainingruntimes"
            if runtime["kind"] == "TrainingRuntime"
            else "clustertrainingruntimes"
        )
        refusal = _create(client, f"{TRAINER}/{where}", runtime, answer)
        if refusal:
            return _named({"runtime": refusal}, namespace)
        answer["has_runtime"] = True
    refusal = _create(client, f"{TRAINER}/namespaces/{namespace}/trainjobs", case["job"], answer)
    answer.pop("has_runtime", None)
    if refusal:
        return _named({**answer, "job": refusal}, namespace)
    job = case["job"]["metadata"]["name"]
    return _named({**answer, **_children(client, namespace, job, case)}, namespace)


def _create(client: Client, path: str, obj: Object, answer: Object) -> str:
    response = client.post(path, obj)
    deadline = time.monotonic() + 20
    # The manager's cache may not have the runtime yet.
    while "must be created before" in response.text and answer.get("has_runtime") and time.monotonic() < deadline:
        time.sleep(0.3)
        response = client.post(path, obj)
    if response.warnings:
        answer["warnings"] = response.warnings
    return "" if response.status == 201 else str(response.json["message"])


def _children(client: Client, namespace: str, job: str, case: Object) -> Object:
    """The JobSet and the other objects of a job, once there are any, or the status or event that says why not."""
    core = f"/api/v1/namespaces/{namespace}"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        jobset = client.get(f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets/{job}")
        status = client.get(f"{TRAINER}/namespaces/{namespace}/trainjobs/{job}").json.get("status")
        events = [
            event["note"]
            for event in client.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events").json["items"]
            if event["regarding"]["kind"] == "TrainJob"
        ]
        if (
            (jobset.status == 200 and (status or case["job"]["spec"].get("suspend")))
            or events
            or (status or {}).get("conditions")
        ):
            break
        time.sleep(0.2)
    time.sleep(0.5)
    status = client.get(f"{TRAINER}/namespaces/{namespace}/trainjobs/{job}").json.get("status") or {}
    jobset = client.get(f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets/{job}")
    patch: Object = {"status": _conditions(status)}
    if events:
        patch["events"] = sorted(set(events))
    if jobset.status == 200:
        patch["jobset"] = _stored(jobset.json)
    for config in client.get(f"{core}/configmaps").json["items"]:
        if config["metadata"]["name"] == names.hostfile_name(job):
            patch.setdefault("configmaps", {})[config["metadata"]["name"]] = _stored(config)
    for secret in client.get(f"{core}/secrets").json["items"]:
        patch.setdefault("secrets", {})[secret["metadata"]["name"]] = {
            **_stored(secret),
            "data": sorted(secret.get("data") or {}),
        }
    for name, path in POD_GROUPS.items():
        groups = client.get(f"{path}/namespaces/{namespace}/podgroups")
        for group in groups.json.get("items") or () if groups.status == 200 else ():
            patch.setdefault("podgroups", {})[name] = _stored(group)
    return patch


def _conditions(status: Object) -> Object:
    return {
        **status,
        "conditions": [
            {key: value for key, value in condition.items() if key != "lastTransitionTime"}
            for condition in status.get("conditions") or ()
        ],
    }


def _stored(obj: Object) -> Object:
    """An object without what the server adds, and without its status."""
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _SERVER_FIELDS}
    for owner in metadata.get("ownerReferences") or ():
        owner.pop("uid")
    return {key: value for key, value in {**obj, "metadata": metadata}.items() if key != "status"}


def _named(answer: Object, namespace: str) -> Object:
    """The answer with the same namespace in every run."""
    text = json.dumps(answer).replace(f"{namespace}-runtime", RUNTIME).replace(namespace, "$NAMESPACE")
    named: Object = json.loads(text)
    return named


if __name__ == "__main__":
    main()
