"""The roles view, edit and admin include every kind that Torchyard brings, on the plane and in an installation."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.apiserver.access.memory_lister import MemoryLister
from tests.apiserver.access.rbac_objects import binding, path_of
from tests.support.yard import Yard

from torchyard.api.access.user_roles import metrics_role, pending_workloads_role, user_roles
from torchyard.api.objects import Object
from torchyard.api.pytorchjob.crd import definition_object
from torchyard.api.queue.crd import definitions as queue_definitions
from torchyard.apiserver.access.authentication import User
from torchyard.apiserver.access.bootstrap_policy import bootstrap_policy
from torchyard.apiserver.access.rbac import Authorizer, AuthorizerAttributes
from torchyard.operator.manifests import Installation, definitions, objects
from torchyard.yard.plane_setup import owned_objects
from torchyard.yard.settings import PlaneSettings

LEVELS = ("view", "edit", "admin")
READ = ("get", "list", "watch")
WRITE = ("create", "update", "patch", "delete", "deletecollection")
EVERY_KIND = [definition_object(), *queue_definitions()]


def _authorizer(*roles: Object) -> Authorizer:
    """Users called after a role that they have in the namespace "team", or with "cluster-" everywhere."""
    bindings = [binding(name, f"ClusterRole/{name}", f"User={name}", namespace="team") for name in LEVELS]
    bindings += [binding(name, f"ClusterRole/{name}", f"User=cluster-{name}") for name in LEVELS]
    return Authorizer(MemoryLister(*bootstrap_policy(), *roles, *bindings))


def _levels(authorizer: Authorizer, verb: str, group: str, resource: str, subresource: str = "") -> tuple[str, ...]:
    """The roles that allow this in the namespace."""
    access = AuthorizerAttributes(verb, group, resource, subresource, "team", "x")
    allowed = tuple(level for level in LEVELS if authorizer.authorize(User(level), access).allowed)
    elsewhere = access._replace(namespace="other")
    assert not any(authorizer.authorize(User(level), elsewhere).allowed for level in LEVELS)
    return allowed


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Authorizer:
    settings = PlaneSettings(state=tmp_path_factory.mktemp("plane"), node=True)
    owned = owned_objects(settings, frozenset(("pytorchjob", "kueue")))
    assert [obj for obj in owned if obj["kind"] == "CustomResourceDefinition"] == EVERY_KIND
    return _authorizer(*(obj for obj in owned if obj["kind"] == "ClusterRole"))


@pytest.mark.parametrize("definition", EVERY_KIND, ids=lambda definition: definition["spec"]["names"]["kind"])
def test_every_kind_of_the_plane_can_be_viewed(plane: Authorizer, definition: Object) -> None:
    spec = definition["spec"]
    group, plural = spec["group"], spec["names"]["plural"]
    for verb in READ:
        assert _levels(plane, verb, group, plural) == LEVELS
    for subresource in {name for version in spec["versions"] for name in version.get("subresources") or ()}:
        assert _levels(plane, "get", group, plural, subresource) == LEVELS
        assert _levels(plane, "update", group, plural, subresource) in ((), ("edit", "admin"))
    assert _levels(plane, "update", group, plural, "status") == ()


@pytest.mark.parametrize("verb", WRITE)
def test_users_edit_jobs_and_admins_edit_queues(plane: Authorizer, verb: str) -> None:
    assert _levels(plane, verb, "kubeflow.org", "pytorchjobs") == ("edit", "admin")
    for plural in ("localqueues", "workloads"):
        assert _levels(plane, verb, "kueue.x-k8s.io", plural) == ("admin",)
    for definition in queue_definitions():
        if definition["spec"]["scope"] == "Cluster":
            access = AuthorizerAttributes(verb, "kueue.x-k8s.io", definition["spec"]["names"]["plural"], name="x")
            assert not any(plane.authorize(User(f"cluster-{level}"), access).allowed for level in LEVELS)


def test_pending_workloads_and_usage_can_be_viewed(plane: Authorizer) -> None:
    assert _levels(plane, "get", "visibility.kueue.x-k8s.io", "localqueues", "pendingworkloads") == LEVELS
    assert _levels(plane, "list", "metrics.k8s.io", "pods") == LEVELS


def test_an_installation_on_a_cluster_includes_its_kinds() -> None:
    roles = [obj for obj in objects(Installation("image")) if obj["kind"] == "ClusterRole"]
    authorizer = _authorizer(*roles)
    for definition in definitions():
        spec = definition["spec"]
        assert _levels(authorizer, "list", spec["group"], spec["names"]["plural"]) == LEVELS
        writers = ("edit", "admin") if spec["scope"] == "Namespaced" else ()
        assert _levels(authorizer, "create", spec["group"], spec["names"]["plural"]) == writers


def test_a_new_namespaced_kind_is_edited_by_editors() -> None:
    names = {"plural": "widgets", "kind": "Widget"}
    version = {"name": "v1", "subresources": {"scale": {}, "status": {}}}
    spec = {"group": "example.com", "names": names, "scope": "Namespaced", "versions": [version]}
    authorizer = _authorizer(*user_roles("widgets", [{"spec": spec}]), pending_workloads_role(), metrics_role())
    assert _levels(authorizer, "patch", "example.com", "widgets") == ("edit", "admin")
    assert _levels(authorizer, "update", "example.com", "widgets", "scale") == ("edit", "admin")
    assert _levels(authorizer, "update", "example.com", "widgets", "status") == ()


def test_a_running_plane_lets_users_view_and_edit_its_kinds(tmp_path: Path) -> None:
    jobs = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
    queues = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/localqueues"
    template = {"spec": {"containers": [{"name": "pytorch", "image": "image"}]}}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "job"},
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": template}}},
    }
    queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "queue"},
        "spec": {"clusterQueue": "queue"},
    }
    with Yard(tmp_path, controllers="*") as yard:
        statuses = {}
        for level in LEVELS:
            bound = binding(level, f"ClusterRole/{level}", f"User={level}", namespace="default")
            assert yard.admin.post(path_of(bound), bound).status == 201
            user = {"Impersonate-User": level}
            reads = [yard.admin.get(path, headers=user).status for path in (jobs, queues)]
            writes = [
                yard.admin.post(f"{path}?dryRun=All", obj, headers=user).status
                for path, obj in ((jobs, job), (queues, queue))
            ]
            statuses[level] = [*reads, *writes]
    assert statuses == {"view": [200, 200, 403, 403], "edit": [200, 200, 201, 403], "admin": [200, 200, 201, 201]}
