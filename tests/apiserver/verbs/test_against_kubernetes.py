"""Random sequences of writes to a real kube-apiserver have the same results as ours, managed fields included."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.apiserver.verbs import kinds
from tests.apiserver.verbs.both import Both
from tests.apiserver.verbs.kinds import DEPLOYMENT, KINDS, NAMES, WIDGET, WIDGET_CRD, WITH_STATUS, Made
from tests.apiserver.verbs.real import Compared
from tests.support.http import JSON_PATCH, MERGE, STRATEGIC, Client
from tests.support.kubernetes import Server
from tests.support.waiting import eventually

from torchyard.api.objects import Object
from torchyard.api.resources import Resource

pytestmark = pytest.mark.cluster

Target = Compared | Both
Step = Callable[[Target], None]

APPLIERS = st.sampled_from(["kubectl", "flux", "argo"])
WRITERS = st.sampled_from(["kubectl-edit", "controller"])
compared = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def theirs(kube_bare: Server) -> Client:
    """A real server that serves widgets."""
    return serving_widgets(kube_bare.admin)


@pytest.fixture(scope="module")
def ours(yard: Server) -> Client:
    """Our server, which serves widgets too."""
    return serving_widgets(yard.admin)


def serving_widgets(client: Client) -> Client:
    created = client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", WIDGET_CRD)
    assert created.status == 201, created
    eventually(lambda: client.get(kinds.path(WIDGET)).status == 200, "widgets to be served")
    # A real server serves them a moment before server-side apply knows their types.
    time.sleep(1)
    return client


def applies(resource: Resource) -> Made:
    def step(contents: Object, manager: str, force: bool) -> Step:
        return lambda target: target.apply(contents, manager, force=force)

    return st.builds(step, kinds.contents(resource), APPLIERS, st.booleans())


def updates(resource: Resource) -> Made:
    def step(contents: Object, manager: str) -> Step:
        return lambda target: target.update(contents, manager)

    return st.builds(step, kinds.contents(resource).map(lambda created: _possible(resource, created)), WRITERS)


def _possible(resource: Resource, contents: Object) -> Object:
    """Contents that a whole object can have: a deployment keeps its selector and has a container."""
    return kinds.completed(resource, contents) if resource is DEPLOYMENT else contents


def merges(resource: Resource) -> Made:
    """Merge patches: contents with some fields set to null."""

    def step(contents: Object, gone: list[tuple[str, ...]], manager: str) -> Step:
        patch = contents
        for steps in gone:
            patch = _with_null(patch, steps)
        return lambda target: target.patch(MERGE, patch, manager)

    return st.builds(step, kinds.contents(resource), st.lists(st.sampled_from(_REMOVABLE), max_size=2), WRITERS)


_REMOVABLE = [
    ("metadata", "labels"),
    ("metadata", "labels", "a"),
    ("metadata", "annotations", "b"),
    ("metadata", "finalizers"),
    ("data", "a"),
    ("spec", "paused"),
    ("spec", "free", "a"),
    ("spec", "parts"),
    ("spec", "template", "metadata", "labels", "c"),
]


def _with_null(patch: Object, steps: tuple[str, ...]) -> Object:
    first, *rest = steps
    inner = patch.get(first)
    return {**patch, first: _with_null(inner if isinstance(inner, dict) else {}, tuple(rest)) if rest else None}


def strategics(resource: Resource) -> Made:
    def step(contents: Object, directives: list[Object], manager: str) -> Step:
        patch = contents
        for directive in directives:
            patch = _overlaid(patch, directive)
        metadata = patch.get("metadata", {})
        if "$deleteFromPrimitiveList/finalizers" in metadata:
            # With both in one patch, upstream's result depends on the order of a Go map.
            patch = {**patch, "metadata": {key: metadata[key] for key in metadata if key != "finalizers"}}
        return lambda target: target.patch(STRATEGIC, patch, manager)

    return st.builds(step, kinds.contents(resource), st.lists(_directives(), max_size=2), WRITERS)


def _directives() -> Made:
    names = st.permutations(NAMES)

    def in_pod(spec: Object) -> Object:
        return {"spec": {"template": {"spec": spec}}}

    return st.one_of(
        names.map(lambda order: in_pod({"$setElementOrder/containers": [{"name": name} for name in order]})),
        names.map(lambda order: in_pod({"containers": [{"name": order[0], "$patch": "delete"}]})),
        names.map(lambda order: in_pod({"containers": [{"$patch": "replace"}, {"name": order[0], "image": "x:9"}]})),
        st.just(in_pod({"nodeSelector": {"$patch": "replace", "q": "r"}})),
        st.just({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
        st.just({"metadata": {"labels": {"$patch": "delete"}}}),
        names.map(lambda order: {"metadata": {"$deleteFromPrimitiveList/finalizers": [f"t.t/{order[0]}"]}}),
        names.map(lambda order: {"metadata": {"$setElementOrder/finalizers": [f"t.t/{name}" for name in order]}}),
        st.just({"data": {"a": None}}),
    )


def _overlaid(patch: Object, directive: Object) -> Object:
    result = dict(patch)
    for key, value in directive.items():
        current = result.get(key)
        result[key] = _overlaid(current, value) if isinstance(value, dict) and isinstance(current, dict) else value
    return result


def json_patches(resource: Resource) -> Made:
    places = st.sampled_from(_PLACES)
    values = st.one_of(kinds.words, kinds.texts, st.just({"name": "c", "image": "x:1"}), st.just(True))
    operation = st.one_of(
        st.builds(
            lambda op, path, value: {"op": op, "path": path, "value": value}, st.sampled_from(_SETTERS), places, values
        ),
        st.builds(lambda path: {"op": "remove", "path": path}, places),
        st.builds(
            lambda op, path, source: {"op": op, "path": path, "from": source}, st.sampled_from(_MOVERS), places, places
        ),
    )

    def step(operations: list[Object], manager: str) -> Step:
        return lambda target: target.patch(JSON_PATCH, operations, manager)

    return st.builds(step, st.lists(operation, min_size=1, max_size=2), WRITERS)


_PLACES = [
    "/metadata/labels",
    "/metadata/labels/a",
    "/metadata/annotations/b",
    "/metadata/finalizers/0",
    "/data/a",
    "/spec/paused",
    "/spec/free/a",
    "/spec/template/spec/containers/0/image",
    "/spec/template/spec/containers/-",
    "/spec/tags/-1",
    "/spec/parts/0/colour",
]
_SETTERS = ["add", "replace", "test"]
_MOVERS = ["copy", "move"]


def status_writes(resource: Resource) -> Made:
    def applied(contents: Object, manager: str, force: bool) -> Step:
        return lambda target: target.apply(contents, manager, "status", force=force)

    def merged(contents: Object, gone: list[tuple[str, ...]], manager: str) -> Step:
        patch = contents
        for steps in gone:
            patch = _with_null(patch, steps)
        return lambda target: target.patch(MERGE, patch, manager, "status")

    def replaced(contents: Object, manager: str) -> Step:
        return lambda target: target.update(contents, manager, "status")

    contents = kinds.contents(resource, "status")
    writes = [st.builds(applied, contents, APPLIERS, st.booleans())]
    writes.append(st.builds(merged, contents, st.lists(st.sampled_from(_STATUS_PARTS), max_size=1), WRITERS))
    if resource.custom is not None:
        writes.append(st.builds(replaced, contents, WRITERS))
    return st.one_of(*writes)


_STATUS_PARTS = [
    ("metadata", "labels"),
    ("status", "phase"),
    ("status", "about"),
    ("status", "about", "texts", "a"),
    ("status", "conditions"),
]


def run(target: Target, first: Step, then: list[Step]) -> None:
    first(target)
    assume(target.live)
    for step in then:
        step(target)


def creates(resource: Resource) -> Made:
    def created(obj: Object, manager: str) -> Step:
        return lambda target: target.create(obj, manager)

    def applied(obj: Object, manager: str) -> Step:
        return lambda target: target.apply(obj, manager)

    whole = kinds.whole(resource)
    return st.one_of(st.builds(created, whole, WRITERS), st.builds(applied, whole, APPLIERS))


def steps(*kinds_of_step: Made) -> Made:
    return st.lists(st.one_of(*kinds_of_step), min_size=1, max_size=5)


def mixed_applies(resource: Resource) -> Made:
    return steps(applies(resource), applies(resource), updates(resource))


def mixed_patches(resource: Resource) -> Made:
    patches = [merges(resource), json_patches(resource), applies(resource)]
    if resource.custom is None:
        patches.append(strategics(resource))
    return steps(*patches)


def mixed_status_writes(resource: Resource) -> Made:
    return steps(status_writes(resource), status_writes(resource), applies(resource))


SEQUENCES = [(mixed, kind) for mixed in (mixed_applies, mixed_patches) for kind in KINDS]
SEQUENCES += [(mixed_status_writes, with_statu) for with_statu in WITH_STATUS]
sequences = pytest.mark.parametrize(
    ("mixed", "resource"), SEQUENCES, ids=[f"{mixed.__name__}-{item.plural}" for mixed, item in SEQUENCES]
)


@sequences
def test_writes_on_a_real_server_match_our_functions(
    theirs: Client, mixed: Callable[[Resource], Made], resource: Resource
) -> None:
    @compared
    @given(creates(resource), mixed(resource))
    def compare(first: Step, then: list[Step]) -> None:
        run(Compared(theirs, resource), first, then)

    compare()


@sequences
def test_writes_on_a_real_server_match_our_server(
    ours: Client, theirs: Client, mixed: Callable[[Resource], Made], resource: Resource
) -> None:
    @compared
    @given(creates(resource), mixed(resource))
    def compare(first: Step, then: list[Step]) -> None:
        run(Both(ours, theirs, resource), first, then)

    compare()


MISFITS: list[Object] = [
    {"metadata": {"labels": "x"}},
    {"metadata": {"labels": {"a": 1}}},
    {"metadata": {"finalizers": [1]}},
    {"spec": {"template": {"apiVersion": "v1", "kind": "X", "metadata": {"labels": "x"}}}},
]


@pytest.mark.parametrize("patch", MISFITS, ids=str)
def test_invalid_metadata_is_rejected_alike(ours: Client, theirs: Client, patch: Object) -> None:
    target = Both(ours, theirs, WIDGET)
    target.create({"apiVersion": WIDGET.api_version, "kind": WIDGET.kind, "metadata": {}}, "creator")
    target.patch(MERGE, patch, "patcher")
    target.apply(patch, "applier")
