"""What a request costs grows with its size, not with its square, and large ones do not stop the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.api.differential.test_traits import SAMPLES
from tests.conformance.objects import crd
from tests.security.plane_support import ADMIN, PlaneClient, plane_client
from tests.support.effort import FULL
from tests.support.large_bodies import LargeField, large_fields

from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionKind
from torchyard.api.objects import Object
from torchyard.api.patch.patch_errors import YamlConversionError
from torchyard.api.patch.strategic_merge import apply_strategic_merge_patch
from torchyard.api.pod.warnings import pod_warnings
from torchyard.api.resources import Resource
from torchyard.api.schema.builtin import type_of
from torchyard.api.schema.document import syntax_error
from torchyard.apiserver.access.authentication import User
from torchyard.apiserver.access.escalation import MAX_RIGHTS
from torchyard.apiserver.patch.json_patch import apply_json_patch
from torchyard.apiserver.patch.yaml_to_json import yaml_to_json
from torchyard.apiserver.request import computation

POD = type_of(GroupVersionKind("", "v1", "Pod"))
PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
# Four times the size takes four times as long, or sixteen times if the cost is quadratic.
MAX_GROWTH = 9.0
# Shorter measurements say nothing.
MIN_SECONDS = 0.03
# A request that stops the loop does so for seconds; a busy machine alone for much less.
MAX_BLOCKED_SECONDS = 0.3


def pod(**spec: Any) -> Object:
    containers = spec.pop("containers", [{"name": "c", "image": "busybox"}])
    return {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": containers, **spec}}


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """A pass over everything that earlier tests left in this process would be counted as the large request's cost."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def growth(work: Callable[[int], object], size: int) -> float:
    """How many times longer four times the size takes; the best of three, since other processes run too."""

    def seconds(count: int) -> float:
        start = time.thread_time()
        work(count)
        return time.thread_time() - start

    ratios = []
    with no_garbage_collection():
        for _ in range(3):
            small, large = seconds(size), seconds(4 * size)
            if large < MIN_SECONDS:
                return 0.0
            ratios.append(large / small)
    return min(ratios)


# Functions


def equal_ports(count: int) -> Object:
    return pod(containers=[{"name": "c", "ports": [{"containerPort": 80, "protocol": "TCP"}] * count}])


def host_ports(count: int) -> Object:
    ports = [{"containerPort": 80, "protocol": "TCP", "hostPort": number + 1} for number in range(count)]
    return pod(containers=[{"name": "c", "ports": ports}])


def nested_paths(count: int) -> Object:
    items = [{"key": "k", "path": f"d{number // 2}/f{number}"} for number in range(count)]
    return pod(volumes=[{"name": "v", "projected": {"sources": [{"configMap": {"name": "c", "items": items}}]}}])


@pytest.mark.parametrize("make", [equal_ports, host_ports, nested_paths])
def test_warnings_about_a_pod_are_computed_in_linear_time(make: Callable[[int], Object]) -> None:
    assert growth(lambda count: pod_warnings(make(count)), 1_500) < MAX_GROWTH


def test_overlapping_ports_and_paths_are_all_found_in_order() -> None:
    ports = [
        {"containerPort": 80, "protocol": "TCP", "hostPort": 1, "hostIP": "10.0.0.1"},
        {"containerPort": 80, "protocol": "TCP", "hostPort": 1, "hostIP": "10.0.0.2"},
        {"containerPort": 80, "protocol": "TCP", "hostIP": "10.0.0.1"},
        {"containerPort": 80, "protocol": "UDP"},
        {"containerPort": 80, "protocol": "TCP"},
        {"containerPort": 80, "protocol": "TCP", "hostPort": 1, "hostIP": "10.0.0.1"},
    ]
    at = "spec.containers[0].ports"
    assert pod_warnings(pod(containers=[{"name": "c", "ports": ports}])) == [
        f"{at}[2]: overlapping port definition with {at}[0]",
        *(f"{at}[4]: overlapping port definition with {at}[{number}]" for number in (0, 1, 2)),
        f"{at}[5]: duplicate port definition with {at}[0]",
        *(f"{at}[5]: overlapping port definition with {at}[{number}]" for number in (2, 4)),
    ]
    items = [{"key": "k", "path": path} for path in ("a/b/c", "a", "a/b", "ab", "a/b/c")]
    volumes = [{"name": "v", "projected": {"sources": [{"configMap": {"name": "c", "items": items}}]}}]
    overlaps = [("a", "a/b/c"), ("a/b", "a/b/c"), ("a/b", "a"), ("a/b/c", "a"), ("a/b/c", "a/b")]
    assert pod_warnings(pod(volumes=volumes)) == [
        f'volume "v" (Projected): overlapping paths: "{path}" (ConfigMap "c") with "{other}" (ConfigMap "c")'
        for path, other in overlaps
    ]


def environment(count: int, value: str) -> list[Object]:
    return [{"name": f"V{number}", "value": value} for number in range(count)]


@pytest.mark.parametrize("directive", [{}, {"$patch": "delete"}])
def test_a_strategic_merge_of_a_list_takes_linear_time(directive: Object) -> None:
    assert POD is not None

    def merge(count: int) -> None:
        current = pod(containers=[{"name": "c", "env": environment(count, "a")}])
        change = [{**variable, **directive} for variable in reversed(environment(count, "b"))]
        patch = {"spec": {"containers": [{"name": "c", "env": change}]}}
        merged = apply_strategic_merge_patch(current, patch, POD)["spec"]["containers"][0]["env"]
        assert len(merged) == (0 if directive else count)

    assert growth(merge, 1_500) < MAX_GROWTH


def test_a_long_list_index_in_a_json_patch_is_rejected() -> None:
    with pytest.raises(StatusError) as excinfo:
        apply_json_patch({"a": [1]}, [{"op": "add", "path": "/a/" + "9" * 5_000, "value": 1}])
    assert excinfo.value.status == 422


@pytest.mark.parametrize(
    "text", ["{}: " * 3_000, "a: &a {k: 1}\n" + "".join(f"b{n}: &b{n} {{<<: [*a, *a], k{n}: *a}}\n" for n in range(9))]
)
def test_hostile_yaml_ends_early(text: str) -> None:
    with pytest.raises(YamlConversionError):
        for _ in range(2):
            yaml_to_json(text.encode())
            text += "".join(f"c{n}: &c{n} [{', '.join(['*a', '*b1'] * 4_000)}]\n" for n in range(9))
            text += f"d: [{', '.join(f'*c{n}' for n in range(9))}, {', '.join(['*c1'] * 4_000)}]\n"


def test_a_chain_of_merge_keys_cannot_multiply_a_document() -> None:
    chain = "".join(f"a{n}: &a{n} {{<<: *a{n - 1}, k{n}: 1}}\n" for n in range(1, 1_500))
    with pytest.raises(YamlConversionError, match="excessive aliasing"):
        yaml_to_json(f"a0: &a0 {{k: 1}}\n{chain}".encode())


def test_a_number_of_a_million_digits_is_a_syntax_error() -> None:
    assert syntax_error(b'{"a":' + b"1" * 1_000_000 + b"}") == "invalid number"


# Requests


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cost")


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[PlaneClient]:
    async with plane_client(tmp_path, controllers="-*") as running:
        yield running


async def blocked_seconds(client: PlaneClient, *requests: tuple[str, str, bytes, str], status: int = 0) -> float:
    """The longest time that the event loop computes during the requests. The server may reject them."""
    client.monitor.reset()
    for method, path, body, content_type in requests:
        query = "fieldManager=test" if method == "PATCH" else ""
        response = await client.send(method, path, body, query=query, headers={"Content-Type": content_type})
        assert response.status < 500, response.body
        assert not status or response.status == status, response.body
        await asyncio.sleep(0.01)
    return client.monitor.longest


JSON = "application/json"
LARGE_REQUESTS: dict[str, tuple[str, str, bytes, str]] = {
    "two thousand ports": ("POST", PODS, orjson.dumps(equal_ports(2_000)), JSON),
    "twenty thousand variables": (
        "POST",
        PODS,
        orjson.dumps(pod(containers=[{"name": "c", "image": "b", "env": environment(20_000, "a")}])),
        JSON,
    ),
    "ten thousand containers": (
        "POST",
        PODS,
        orjson.dumps(pod(containers=[{"name": f"c{n}", "image": "b"} for n in range(10_000)])),
        JSON,
    ),
    "half a megabyte of YAML": (
        "POST",
        CONFIG_MAPS,
        b"metadata:\n  name: y\ndata:\n" + b"".join(b"  k%d: v\n" % n for n in range(30_000)),
        "application/yaml",
    ),
    "half a megabyte of applied YAML": (
        "PATCH",
        f"{CONFIG_MAPS}/y",
        b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: y\ndata:\n"
        + b"".join(b"  k%d: v\n" % n for n in range(30_000)),
        "application/apply-patch+yaml",
    ),
    "ten thousand nested lists": ("POST", CONFIG_MAPS, b"[" * 10_000, JSON),
    "a million digits": ("POST", CONFIG_MAPS, b'{"metadata":{"generation":' + b"1" * 1_000_000 + b"}}", JSON),
    "ten thousand operations": (
        "PATCH",
        "/api/v1/namespaces/default",
        orjson.dumps([{"op": "add", "path": f"/metadata/labels/k{n}", "value": "v"} for n in range(10_000)]),
        "application/json-patch+json",
    ),
    "duplicate fields below a long key": (
        "POST",
        CONFIG_MAPS,
        b'{"metadata":{"name":"d"},"%s":{%s}}'
        % (b"k" * 200_000, b",".join(b'"a%d":{"b":1,"b":2}' % n for n in range(10_000))),
        JSON,
    ),
    "twenty thousand owners": (
        "POST",
        CONFIG_MAPS,
        orjson.dumps(
            {
                "metadata": {
                    "name": "o",
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "ConfigMap", "name": f"o{n}", "uid": f"u{n}"}
                        for n in range(20_000)
                    ],
                }
            }
        ),
        JSON,
    ),
}


@pytest.mark.parametrize("name", LARGE_REQUESTS)
async def test_a_large_request_does_not_stop_the_event_loop(client: PlaneClient, name: str) -> None:
    assert await blocked_seconds(client, LARGE_REQUESTS[name]) < MAX_BLOCKED_SECONDS


async def test_other_requests_are_answered_while_a_large_one_is_computed(client: PlaneClient) -> None:
    large = asyncio.create_task(
        client.send(
            "POST",
            CONFIG_MAPS,
            LARGE_REQUESTS["half a megabyte of YAML"][2],
            headers={"Content-Type": "application/yaml"},
        )
    )
    answered = 0
    while not large.done():
        assert (await client.send("GET", "/api/v1/namespaces/default")).status == 200
        answered += not large.done()
        await asyncio.sleep(0.01)
    assert answered > 3


async def test_a_computation_beyond_its_deadline_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    is_running = True

    def endless() -> None:
        nonlocal is_running
        try:
            while True:
                pass
        finally:
            is_running = False

    with pytest.raises(StatusError) as excinfo:
        await computation.compute(computation.LARGE_BYTES + 1, endless, deadline=0.1)
    assert excinfo.value.status == 504
    while is_running:
        await asyncio.sleep(0.01)
    assert await computation.compute(computation.LARGE_BYTES + 1, lambda: 1) == 1


RULES = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "numbers": {
                    "type": "array",
                    "items": {
                        "type": "integer",
                        "x-kubernetes-validations": [{"rule": f"self > {-number - 1}"} for number in range(100)],
                    },
                },
                "pairs": {
                    "type": "array",
                    "items": {"type": "integer"},
                    "x-kubernetes-validations": [{"rule": "self.all(a, self.all(b, a + b > 0))"}],
                },
            },
        }
    },
}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"numbers": [1] * 20_000}, b"running out of cost budget"),
        ({"pairs": [1] * 1_000}, b"actual cost limit exceeded"),
    ],
    ids=["many rules on many items", "a nested loop in a small object"],
)
async def test_rules_have_a_cost_limit_and_do_not_stop_the_loop(
    client: PlaneClient, spec: Object, message: bytes
) -> None:
    definition = crd("boats", version={"schema": {"openAPIV3Schema": RULES}})
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert (await client.send("POST", path, orjson.dumps(definition))).status == 201
    boat = {"apiVersion": "test.torchyard.dev/v1", "kind": "Boat", "metadata": {"name": "b"}, "spec": spec}
    client.monitor.reset()
    response = await client.send("POST", "/apis/test.torchyard.dev/v1/namespaces/default/boats", orjson.dumps(boat))
    await asyncio.sleep(0.01)
    assert response.status == 422
    assert isinstance(response.body, bytes)
    assert message in response.body
    assert client.monitor.longest < MAX_BLOCKED_SECONDS


async def test_a_rule_with_more_combinations_than_can_be_checked_is_refused(client: PlaneClient) -> None:
    values = [f"a{number}" for number in range(100)]
    rule = {"apiGroups": values, "resources": values, "resourceNames": values, "verbs": values}
    roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"
    role = {"metadata": {"name": "r"}, "rules": [rule]}
    grant = {
        "metadata": {"name": "g"},
        "rules": [{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["create"]}],
    }
    binding = {
        "metadata": {"name": "g"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "g"},
        "subjects": [{"kind": "User", "name": "eve", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    assert (await client.send("POST", roles, orjson.dumps(grant))).status == 201
    assert (await client.send("POST", roles.replace("/roles", "/rolebindings"), orjson.dumps(binding))).status == 201
    response = await client.send("POST", roles, orjson.dumps(role), user=User("eve"))
    assert response.status == 403
    assert isinstance(response.body, bytes)
    assert f"at most {MAX_RIGHTS} can be checked".encode() in response.body
    assert (await client.send("POST", roles, orjson.dumps(role), user=ADMIN)).status == 201


async def test_names_that_clients_make_up_do_not_stay_in_memory(client: PlaneClient) -> None:
    """Neither as labels of metrics nor as keys of cached documents."""
    for number in range(20):
        await client.send("GET", f"{PODS}/p/made-up-{number}")
        await client.send("GET", "/api", headers={"Host": f"made-up-{number}"})
    metrics = await client.send("GET", "/metrics")
    assert isinstance(metrics.body, bytes)
    assert b"made-up" not in metrics.body
    handler = client.plane.server._non_resource.discovery
    assert not [key for key in handler._documents if "made-up" in "".join(key)]


# Every list and map of every kind


def resources_to_try(client: PlaneClient) -> list[Resource]:
    samples = {
        f"{resource.plural}.{resource.group}".rstrip("."): resource for resource in client.plane.server.registry.catalog
    }
    return [resource for name, resource in samples.items() if name in SAMPLES and resource.type is not None]


async def test_every_list_and_map_of_every_kind_is_processed_in_linear_time(client: PlaneClient) -> None:
    slow: list[str] = []
    seen: set[tuple[str, str]] = set()
    for resource in resources_to_try(client):
        assert resource.type is not None
        for field in large_fields(resource.type):
            # the same pod template is in many kinds
            key = (field.type.name or str(field).rpartition("template.")[2], str(field).rpartition(".")[2])
            if not FULL and key in seen:
                continue
            seen.add(key)
            if await grows_too_fast(client, resource, field):
                slow.append(f"{resource.plural} {field}")
    assert not slow


async def grows_too_fast(client: PlaneClient, resource: Resource, field: LargeField) -> bool:
    """Whether four times as many entries take much longer than four times as long, at each of three sizes.

    A cost that is quadratic is so at every size. What other threads do now and then counts less and less.
    """
    sample = SAMPLES[f"{resource.plural}.{resource.group}".rstrip(".")]
    namespace = "/namespaces/default" if resource.namespaced else ""
    prefix = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    assert resource.type is not None
    for count in (250, 500, 1_000):
        seconds = []
        for entries in (count, 4 * count):
            body = orjson.dumps(field.fill(sample, resource.type, entries))
            start = time.process_time()
            response = await client.send("POST", f"{prefix}{namespace}/{resource.plural}", body, query="dryRun=All")
            seconds.append(time.process_time() - start)
            assert response.status < 500, (resource.plural, str(field), response.body)
        if seconds[1] < MIN_SECONDS or seconds[1] < MAX_GROWTH * seconds[0]:
            return False
    return True
