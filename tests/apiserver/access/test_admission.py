"""Built-in admission, compared with a real server: the same refusals, the same completed objects."""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Iterator
from random import Random

import pytest
from tests.apiserver.access.admission_cases import CASES, SETUP, Case
from tests.apiserver.access.memory_lister import Memory
from tests.support.kubernetes import Server

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.apiserver.access.admission.attributes import AdmissionAttributes
from torchyard.apiserver.access.admission.chain import BuiltInAdmission
from torchyard.apiserver.access.authentication import User
from torchyard.apiserver.access.rbac import Authorizer

ADMIN = User("admin", groups=("system:masters",))
TEAM = "admission"
KINDS = {
    "persistentvolumeclaims": "PersistentVolumeClaim",
    "persistentvolumes": "PersistentVolume",
    "volumeattributesclasses": "VolumeAttributesClass",
}
READ = (
    "/api/v1/namespaces",
    "/api/v1/serviceaccounts",
    "/api/v1/limitranges",
    "/api/v1/resourcequotas",
    "/api/v1/pods",
    "/api/v1/services",
    "/api/v1/configmaps",
    "/api/v1/secrets",
    "/api/v1/persistentvolumeclaims",
    "/apis/batch/v1/jobs",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/node.k8s.io/v1/runtimeclasses",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/networking.k8s.io/v1/ingressclasses",
)


def mirrored(server: Server) -> Memory:
    """What the real server has, for our rules to look at."""
    memory = Memory()
    for path in READ:
        answer = server.admin.get(path).json
        about = {"apiVersion": answer["apiVersion"], "kind": answer["kind"].removesuffix("List")}
        memory.put(*({**about, **one} for one in answer["items"]))
    return memory


@pytest.fixture(scope="module")
def prepared(kube: Server) -> Iterator[Server]:
    """The real server with namespaces, classes, limits and quotas for the cases."""
    for path, body in SETUP:
        status = body.pop("status", None)
        answer = kube.admin.post(path, body)
        if path == "/api/v1/namespaces":
            wait_for_account(kube, body["metadata"]["name"])
        assert answer.status == 201, answer
        if status is not None:
            name = body["metadata"]["name"]
            written = kube.admin.put(f"{path}/{name}/status", {**answer.json, "status": status})
            assert written.status == 200, written
    kube.admin.delete("/api/v1/namespaces/admission-ending")
    yield kube
    for path in ("scheduling.k8s.io/v1/priorityclasses", "storage.k8s.io/v1/storageclasses"):
        for one in kube.admin.get(f"/apis/{path}").json["items"]:
            kube.admin.delete(f"/apis/{path}/{one['metadata']['name']}")


def wait_for_account(server: Server, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    until = time.monotonic() + 30
    while server.admin.get(path).status != 200:
        assert time.monotonic() < until, f"no default service account in {namespace}"
        time.sleep(0.02)


def ours(case: Case, memory: Memory) -> Object:
    """What our rules make of a new object: the object, or the Status of its refusal."""
    obj = {"kind": KINDS.get(case.resource, ""), **copy.deepcopy(case.body)}
    metadata = obj["metadata"]
    metadata.setdefault("namespace", case.namespace)
    attributes = AdmissionAttributes(
        "CREATE", case.group, case.resource, case.namespace, "", ADMIN, memory, obj=obj, dry_run=True
    )
    admission = BuiltInAdmission(Authorizer(memory), random=Random(7))
    try:
        admission.mutate(attributes)
        admission.validate(attributes)
        admission.charge(attributes)
    except StatusError as error:
        return error.body()
    return visible(obj)


def theirs(case: Case, server: Server) -> Object:
    answer = server.admin.post(case.path, case.body, query={"dryRun": "All"})
    return visible(answer.json) if answer.status == 201 else answer.json


def visible(obj: Object) -> Object:
    """What admission decides about an object, without what defaulting adds."""
    spec = obj.get("spec") or {}
    renamed: dict[str, str] = {}
    for number, volume in enumerate(spec.get("volumes") or ()):
        renamed[volume["name"]] = f"volume-{number}"
    metadata = obj["metadata"]
    found: Object = {
        "annotations": metadata.get("annotations"),
        "finalizers": metadata.get("finalizers"),
        "volumes": [{**one, "name": renamed[one["name"]]} for one in spec.get("volumes") or ()],
        **{
            key: spec.get(key)
            for key in (
                "serviceAccountName",
                "serviceAccount",
                "imagePullSecrets",
                "tolerations",
                "priority",
                "priorityClassName",
                "preemptionPolicy",
                "nodeSelector",
                "overhead",
                "storageClassName",
                "ingressClassName",
            )
        },
    }
    for kind in ("containers", "initContainers"):
        found[kind] = [
            (
                one.get("resources") or {},
                [{**mount, "name": renamed[mount["name"]]} for mount in one.get("volumeMounts") or ()],
            )
            for one in spec.get(kind) or ()
        ]
    return found


@pytest.mark.cluster
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.name))
def test_a_new_object_is_completed_or_refused_as_by_the_real_server(prepared: Server, case: Case) -> None:
    memory = mirrored(prepared)
    expected = ours(case, memory)
    # Its rules read caches that follow a moment later.
    for attempt in itertools.count():
        real = theirs(case, prepared)
        if real == expected or attempt == 40:
            break
        time.sleep(0.05)
    assert expected == real


@pytest.mark.cluster
@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_some_namespaces_are_never_deleted(prepared: Server, name: str) -> None:
    real = prepared.admin.delete(f"/api/v1/namespaces/{name}").json
    admission = BuiltInAdmission(Authorizer(Memory()))
    attributes = AdmissionAttributes(
        "DELETE", "", "namespaces", name, name, ADMIN, Memory(), old={"metadata": {"name": name}}
    )
    with pytest.raises(StatusError) as error:
        admission.validate(attributes)
    assert error.value.body() == real


@pytest.mark.cluster
def test_system_priority_classes_are_never_deleted(prepared: Server) -> None:
    name = "system-node-critical"
    real = prepared.admin.delete(f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}").json
    attributes = AdmissionAttributes("DELETE", "scheduling.k8s.io", "priorityclasses", "", name, ADMIN, Memory())
    with pytest.raises(StatusError) as error:
        BuiltInAdmission(Authorizer(Memory())).validate(attributes)
    assert error.value.body() == real


@pytest.mark.cluster
@pytest.mark.parametrize("storage_class", ["plain", "growing", ""])
def test_a_claim_grows_only_where_its_class_lets_it(prepared: Server, storage_class: str) -> None:
    path, name = f"/api/v1/namespaces/{TEAM}/persistentvolumeclaims", f"grow-{storage_class or 'none'}"
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": storage_class,
        "volumeName": "v",
    }
    made = prepared.admin.post(path, {"metadata": {"name": name}, "spec": spec}).json
    bound = {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    old = prepared.admin.put(f"{path}/{name}/status", {**made, "status": bound}).json
    new = {**old, "spec": {**old["spec"], "resources": {"requests": {"storage": "2Gi"}}}}
    real = prepared.admin.put(f"{path}/{name}", new)
    attributes = AdmissionAttributes(
        "UPDATE", "", "persistentvolumeclaims", TEAM, name, ADMIN, mirrored(prepared), obj=new, old=old
    )
    try:
        BuiltInAdmission(Authorizer(Memory())).validate(attributes)
    except StatusError as error:
        assert error.body() == real.json
    else:
        assert real.status == 200
