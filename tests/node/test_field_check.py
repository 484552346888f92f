"""What is said about fields on the other rungs and for an ordinary user."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

import pytest

from torchyard.api.objects import Object
from torchyard.apiserver.access.admission.attributes import AdmissionAttributes
from torchyard.apiserver.access.admission.pod_fields import unsupported_fields
from torchyard.node.pod.field_check import FieldRefused, check_fields
from torchyard.node.runtime.seccomp import filters

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import PodRecord

SPEC: Object = {
    "hostAliases": [{"ip": "1.2.3.4"}],
    "containers": [
        {
            "name": "main",
            "securityContext": {"readOnlyRootFilesystem": True},
            "volumeMounts": [
                {"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
                {"name": "same", "mountPath": "/data"},
                {"name": "other", "mountPath": "/config"},
            ],
        }
    ],
    "volumes": [{"name": "same", "hostPath": {"path": "/data"}}, {"name": "other", "configMap": {"name": "a"}}],
}


def pod(spec: Object) -> Object:
    return {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec}


def record(**fields: Any) -> PodRecord:
    return cast("PodRecord", {"sandboxed": False, "engine": False, **fields})


def test_a_plain_process_lacks_mounts_hosts_and_a_read_only_root() -> None:
    fields = [text.partition(": ")[0] for text in check_fields(pod(SPEC), record())]
    assert sorted(fields) == [
        "spec.containers[0].securityContext.readOnlyRootFilesystem",
        "spec.containers[0].volumeMounts[2]",
        "spec.hostAliases[0]",
    ]
    assert check_fields(pod(SPEC), record(sandboxed=True)) == []
    assert check_fields(pod(SPEC), record(engine=True)) == []


def test_sysctls_are_refused_where_the_pod_has_no_namespaces() -> None:
    spec = {"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]}, "containers": []}
    with pytest.raises(FieldRefused, match=r"spec\.securityContext\.sysctls\[0\]: is not supported by this node"):
        check_fields(pod(spec), record())
    assert check_fields(pod(spec), record(sandboxed=True)) == []


def test_an_ordinary_user_cannot_give_files_to_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = {"securityContext": {"fsGroup": 7, "supplementalGroups": [8]}, "containers": []}
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    texts = check_fields(pod(spec), record(sandboxed=True))
    assert texts == [
        "spec.securityContext.fsGroup: has no effect on this node: only root can give the files of volumes to a group",
        "spec.securityContext.supplementalGroups: has no effect on this node: "
        "an ordinary user has one group in containers",
    ]
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert check_fields(pod(spec), record(sandboxed=True)) == []


class _Nodes:
    """A lister with nodes of the given rungs."""

    def __init__(self, *rungs: str, user: str = "root") -> None:
        labels = [{"torchyard.dev/runtime": rung, "torchyard.dev/user": user} for rung in rungs]
        self._nodes = [{"metadata": {"labels": own}} for own in labels]

    def list(self, group: str, resource: str, namespace: str = "") -> list[Object]:
        return self._nodes if resource == "nodes" else []


@pytest.mark.parametrize(
    ("rungs", "count"), [((), 0), (("sandbox",), 0), (("process",), 3), (("sandbox", "process"), 3), (("other",), 0)]
)
def test_warnings_are_about_the_rungs_of_the_nodes(rungs: tuple[str, ...], count: int) -> None:
    lister: Any = _Nodes(*rungs)
    user: Any = None
    attributes = AdmissionAttributes("CREATE", "", "pods", "n", "p", user, lister, pod(SPEC))
    assert len(unsupported_fields(attributes)) == count


@pytest.mark.parametrize(("user", "count"), [("root", 0), ("ordinary", 2)])
def test_warnings_are_about_the_user_of_the_node(user: str, count: int) -> None:
    lister: Any = _Nodes("sandbox", user=user)
    nobody: Any = None
    spec = {"securityContext": {"fsGroup": 7, "supplementalGroups": [8]}, "containers": []}
    attributes = AdmissionAttributes("CREATE", "", "pods", "n", "p", nobody, lister, pod(spec))
    assert len(unsupported_fields(attributes)) == count


def test_a_machine_without_filters_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = {"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}, "containers": []}
    assert check_fields(pod(spec), record(sandboxed=True)) == []
    monkeypatch.setattr(filters, "is_supported", lambda: False)
    texts = check_fields(pod(spec), record(sandboxed=True))
    at = "spec.securityContext.seccompProfile.type"
    assert texts == [f"{at}: has no effect on this node: system calls cannot be filtered on this machine"]
