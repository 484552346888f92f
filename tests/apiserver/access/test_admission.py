"""Built-in admission, compared with a real server: the same errors and the same completed objects."""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Iterator
from random import Random

import pytest
from tests.apiserver.access.admission_cases import CASES, SETUP, Case
from tests.apiserver.access.memory_lister import MemoryLister
from tests.support.accounts import wait_for_account
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


def mirrored(server: Server) -> MemoryLister:
    """What the real server has, for our rules to look at."""
    memory = MemoryLister()
    for path in READ:
        response = server.admin.get(path).json
        about = {"apiVersion": response["apiVersion"], "kind": response["kind"].removesuffix("List")}
        memory.put(*({**about, **item} for item in response["items"]))
    return memory


@pytest.fixture(scope="module")
def prepared(kube: Server) -> Iterator[Server]:
    """The real server with namespaces, classes, limits and quotas for the cases."""
    for path, body in SETUP:
        status = body.pop("status", None)
        response = kube.admin.post(path, body)
        if path == "/api/v1/namespaces":
            wait_for_account(kube.admin, body["metadata"]["name"])
        assert response.status == 201, response
        if status is not None:
            name = body["metadata"]["name"]
            written = kube.admin.put(f"{path}/{name}/status", {**response.json, "status": status})
            assert written.status == 200, written
    kube.admin.delete("/api/v1/namespaces/admission-ending")
    yield kube
    for path in ("scheduling.k8s.io/v1/priorityclasses", "storage.k8s.io/v1/storageclasses"):
        for item in kube.admin.get(f"/apis/{path}").json["items"]:
            kube.admin.delete(f"/apis/{path}/{item['metadata']['name']}")


def torchyard_result(case: Case, memory: MemoryLister) -> Object:
    """The object after the built-in plugins, or the Status of its rejection."""
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


def kubernetes_result(case: Case, server: Server) -> Object:
    response = server.admin.post(case.path, case.body, query={"dryRun": "All"})
    return visible(response.json) if response.status == 201 else response.json


def visible(obj: Object) -> Object:
    """What admission decides about an object, without what defaulting adds."""
    spec = obj.get("spec") or {}
    renamed: dict[str, str] = {}
    for number, volume in enumerate(spec.get("volumes") or ()):
        renamed[volume["name"]] = f"volume-{number}"
    metadata = obj["metadata"]
    result: Object = {
        "annotations": metadata.get("annotations"),
        "finalizers": metadata.get("finalizers"),
        "volumes": [{**entry, "name": renamed[entry["name"]]} for entry in spec.get("volumes") or ()],
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
        result[kind] = [
            (
                entry.get("resources") or {},
                [{**mount, "name": renamed[mount["name"]]} for mount in entry.get("volumeMounts") or ()],
            )
            for entry in spec.get(kind) or ()
        ]
    return result


@pytest.mark.cluster
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.name))
def test_admission_of_new_objects_matches_the_real_server(prepared: Server, case: Case) -> None:
    memory = mirrored(prepared)
    expected = torchyard_result(case, memory)
    # Its rules read caches that follow a moment later.
    for attempt in itertools.count():
        real = kubernetes_result(case, prepared)
        if real == expected or attempt == 40:
            break
        time.sleep(0.05)
    assert expected == real


@pytest.mark.cluster
@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_system_namespaces_cannot_be_deleted(prepared: Server, name: str) -> None:
    real = prepared.admin.delete(f"/api/v1/namespaces/{name}").json
    admission = BuiltInAdmission(Authorizer(MemoryLister()))
    attributes = AdmissionAttributes(
        "DELETE", "", "namespaces", name, name, ADMIN, MemoryLister(), old={"metadata": {"name": name}}
    )
    with pytest.raises(StatusError) as error:
        admission.validate(attributes)
    assert error.value.body() == real


@pytest.mark.cluster
def test_system_priority_classes_cannot_be_deleted(prepared: Server) -> None:
    name = "system-node-critical"
    real = prepared.admin.delete(f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}").json
    attributes = AdmissionAttributes("DELETE", "scheduling.k8s.io", "priorityclasses", "", name, ADMIN, MemoryLister())
    with pytest.raises(StatusError) as error:
        BuiltInAdmission(Authorizer(MemoryLister())).validate(attributes)
    assert error.value.body() == real


@pytest.mark.cluster
@pytest.mark.parametrize("storage_class", ["plain", "growing", ""])
def test_a_claim_can_grow_only_if_its_class_allows_expansion(prepared: Server, storage_class: str) -> None:
    path, name = f"/api/v1/namespaces/{TEAM}/persistentvolumeclaims", f"grow-{storage_class or 'none'}"
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": storage_class,
        "volumeName": "v",
    }
    created = prepared.admin.post(path, {"metadata": {"name": name}, "spec": spec}).json
    bound = {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    old = prepared.admin.put(f"{path}/{name}/status", {**created, "status": bound}).json
    new = {**old, "spec": {**old["spec"], "resources": {"requests": {"storage": "2Gi"}}}}
    real = prepared.admin.put(f"{path}/{name}", new)
    attributes = AdmissionAttributes(
        "UPDATE", "", "persistentvolumeclaims", TEAM, name, ADMIN, mirrored(prepared), obj=new, old=old
    )
    try:
        BuiltInAdmission(Authorizer(MemoryLister())).validate(attributes)
    except StatusError as error:
        assert error.body() == real.json
    else:
        assert real.status == 200
