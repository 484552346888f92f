"""Webhooks and policies decide as they do on a real server, whose verdicts are recorded and can be checked."""

from __future__ import annotations

import asyncio
import copy
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.access import webhook_cases as cases
from tests.apiserver.access import webhook_kubernetes as theirs
from tests.apiserver.access.webhook_server import WebhookServer, answers, denies, patches
from tests.support.kubernetes import Server

from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionKind
from torchyard.api.objects import Object
from torchyard.api.resources import Resource
from torchyard.api.schema.builtin import type_of
from torchyard.apiserver.access.webhooks.dispatch import WebhookDispatcher
from torchyard.apiserver.access.webhooks.policies import PolicyValidator
from torchyard.apiserver.access.webhooks.policy_evaluation import policy_errors
from torchyard.apiserver.access.webhooks.versioned_attributes import VersionedAttributes

CONFIG_MAPS = Resource(
    group="",
    version="v1",
    plural="configmaps",
    singular="configmap",
    kind="ConfigMap",
    namespaced=True,
    verbs=("create",),
    type=type_of(GroupVersionKind("", "v1", "ConfigMap")),
)
ADMIN = {"username": "admin", "groups": ["system:masters"]}


def namespace(name: str) -> Object:
    return {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookServer]:
    replies = {name: case[1] for name, case in cases.WEBHOOKS.items()}
    with WebhookServer(tmp_path_factory.mktemp("webhook"), replies) as running:
        yield running


@pytest.fixture
async def webhooks(server: WebhookServer) -> AsyncIterator[WebhookDispatcher]:
    configurations = cases.configurations(server)
    made = WebhookDispatcher(lambda plural: [configurations[plural]], namespace)
    yield made
    await made.close()


@pytest.fixture(scope="module")
def policies() -> PolicyValidator:
    made, bound = cases.policies()
    return PolicyValidator(
        lambda: made, lambda: bound, namespace, parameters=lambda version, kind, namespace: [cases.PARAMETERS]
    )


def asked(name: str, way: str) -> VersionedAttributes:
    new, old = cases.config_map(name), cases.config_map(name)
    common: Any = {"namespace": "default", "name": name, "user": ADMIN}
    match way:
        case "delete":
            return VersionedAttributes("DELETE", CONFIG_MAPS, None, old, **common)
        case "update":
            return VersionedAttributes("UPDATE", CONFIG_MAPS, cases.config_map(name, more="data"), old, **common)
    return VersionedAttributes("CREATE", CONFIG_MAPS, new, None, dry_run=way == "dry-run", **common)


async def verdict(
    webhooks: WebhookDispatcher, policies: PolicyValidator, one: VersionedAttributes, port: int
) -> Object:
    try:
        admitted = await webhooks.mutate(one)
        final = one.with_object(admitted.obj)
        warnings = [*admitted.warnings, *await webhooks.validate(final), *policies.validate(final)]
    except StatusError as error:
        said = cases.refused(error.status, error.reason, error.message, error.details, port)
        return dict(json.loads(re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID", json.dumps(said))))
    return {"data": (final.obj or {}).get("data"), "warnings": warnings}


WAYS = {name: case[3] for name, case in cases.WEBHOOKS.items()} | {n: case[2] for n, case in cases.POLICIES.items()}


@pytest.mark.parametrize("name", WAYS)
async def test_the_verdict_is_a_real_servers(
    name: str, server: WebhookServer, webhooks: WebhookDispatcher, policies: PolicyValidator
) -> None:
    assert await verdict(webhooks, policies, asked(name, WAYS[name]), server.port) == cases.recorded()[name]


def test_our_server_says_what_a_real_one_says(yard: Server, server: WebhookServer) -> None:
    said, wanted = theirs.verdicts(yard.admin, server), cases.recorded()
    assert {name: one for name, one in said.items() if one != wanted[name]} == {}
    assert said.keys() == wanted.keys()


@pytest.mark.cluster
def test_the_recorded_verdicts_are_a_real_servers(kube_bare: Server, server: WebhookServer) -> None:
    assert theirs.verdicts(kube_bare.admin, server) == cases.recorded()


def hook(server: WebhookServer, path: str, **more: Any) -> Object:
    rule = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
    return {
        "name": f"{path}.example.com",
        "clientConfig": server.config(path),
        "sideEffects": "None",
        "rules": [rule],
        **more,
    }


class Configured:
    """Webhooks of one configuration for a test of their own."""

    def __init__(self, directory: Path, replies: dict[str, Any], **options: Any) -> None:
        self.server = WebhookServer(directory, replies)
        self.hooks: dict[str, list[Object]] = {}
        self.webhooks = WebhookDispatcher(self._configurations, options.pop("namespace", namespace), **options)

    def _configurations(self, plural: str) -> list[Object]:
        found = self.hooks.get(plural.removesuffix("webhookconfigurations"))
        return [{"metadata": {"name": "mine"}, "webhooks": found}] if found else []

    async def __aenter__(self) -> Configured:
        await asyncio.to_thread(self.server.__enter__)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.webhooks.close()
        await asyncio.to_thread(self.server.__exit__)


async def test_a_review_says_what_is_asked(tmp_path: Path) -> None:
    async with Configured(tmp_path, {"ok": answers(allowed=True)}) as one:
        one.hooks["validating"] = [hook(one.server, "ok")]
        await one.webhooks.validate(asked("patched", "update"))
        ((_, review),) = one.server.asked
    request = review["request"]
    assert review["kind"] == "AdmissionReview"
    assert request.pop("uid")
    kind = {"group": "", "version": "v1", "kind": "ConfigMap"}
    resource = {"group": "", "version": "v1", "resource": "configmaps"}
    assert request == {
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": "patched",
        "namespace": "default",
        "operation": "UPDATE",
        "userInfo": ADMIN,
        "object": cases.config_map("patched", more="data"),
        "oldObject": cases.config_map("patched"),
        "dryRun": False,
        "options": None,
    }


async def test_mutating_webhooks_see_what_those_before_them_did(tmp_path: Path) -> None:
    replies = {
        "one": patches({"op": "add", "path": "/data/one", "value": "1"}),
        "two": patches({"op": "add", "path": "/data/two", "value": "2"}),
    }
    async with Configured(tmp_path, replies) as one:
        one.hooks["mutating"] = [hook(one.server, "one"), hook(one.server, "two")]
        before = asked("x", "create")
        sent = copy.deepcopy(before.obj)
        admitted = await one.webhooks.mutate(before)
        seen = [(path, sorted(review["request"]["object"]["data"])) for path, review in one.server.asked]
    assert admitted.obj is not None
    assert admitted.obj["data"] == {"a": "b", "one": "1", "two": "2"}
    assert seen == [("one", ["a"]), ("two", ["a", "one"])]
    assert before.obj == sent  # the object given is left alone


async def test_a_webhook_that_asks_for_it_is_called_again_after_a_later_change(tmp_path: Path) -> None:
    replies = {
        "curious": answers(allowed=True),
        "plain": answers(allowed=True),
        "changes": patches({"op": "add", "path": "/data/x", "value": "y"}),
        "late": answers(allowed=True),
    }
    async with Configured(tmp_path, replies) as one:
        one.hooks["mutating"] = [
            hook(one.server, "curious", reinvocationPolicy="IfNeeded"),
            hook(one.server, "plain", reinvocationPolicy="Never"),
            hook(one.server, "changes", reinvocationPolicy="IfNeeded"),
            hook(one.server, "late", reinvocationPolicy="IfNeeded"),
        ]
        await one.webhooks.mutate(asked("x", "create"))
        assert [path for path, _ in one.server.asked] == ["curious", "plain", "changes", "late", "curious"]


async def test_nothing_is_called_twice_when_nothing_changed(tmp_path: Path) -> None:
    async with Configured(tmp_path, {"curious": answers(allowed=True)}) as one:
        one.hooks["mutating"] = [hook(one.server, "curious", reinvocationPolicy="IfNeeded")] * 2
        before = asked("x", "create")
        admitted = await one.webhooks.mutate(before)
        assert admitted.obj is before.obj
        assert len(one.server.asked) == 2


async def test_a_deletion_cannot_be_patched(tmp_path: Path) -> None:
    async with Configured(tmp_path, {"p": patches({"op": "add", "path": "/data", "value": {}})}) as one:
        one.hooks["mutating"] = [hook(one.server, "p")]
        with pytest.raises(StatusError, match="attempted to modify the object, which is not supported"):
            await one.webhooks.mutate(asked("x", "delete"))


async def test_a_webhook_with_side_effects_refuses_a_dry_run(tmp_path: Path) -> None:
    async with Configured(tmp_path, {"ok": answers(allowed=True)}) as one:
        one.hooks["validating"] = [hook(one.server, "ok", sideEffects="Some")]
        with pytest.raises(StatusError) as refused:
            await one.webhooks.validate(asked("x", "dry-run"))
        assert refused.value.status == 400
        assert refused.value.message == 'admission webhook "ok.example.com" does not support dry run'


async def test_what_configures_admission_is_never_intercepted(tmp_path: Path) -> None:
    async with Configured(tmp_path, {"no": denies()}) as one:
        one.hooks["validating"] = [hook(one.server, "no")]
        own = Resource(
            group="admissionregistration.k8s.io",
            version="v1",
            plural="validatingwebhookconfigurations",
            singular="validatingwebhookconfiguration",
            kind="ValidatingWebhookConfiguration",
            namespaced=False,
            verbs=("create",),
        )
        assert (
            await one.webhooks.validate(VersionedAttributes("CREATE", own, {"metadata": {"name": "x"}}, name="x")) == []
        )
        assert one.server.asked == []


async def test_a_service_is_called_at_its_address_under_its_name(tmp_path: Path) -> None:
    wanted: list[tuple[str, str, int]] = []

    async def resolve(namespace: str, name: str, port: int) -> tuple[str, int]:
        wanted.append((namespace, name, port))
        return "127.0.0.1", one.server.port

    async with Configured(tmp_path, {"ok": answers(allowed=True, warnings=["hi"])}, resolve=resolve) as one:
        service = {"name": "hook", "namespace": "default", "path": "/ok", "port": 8443}
        config = {"service": service, "caBundle": one.server.ca}
        one.hooks["validating"] = [hook(one.server, "ok", clientConfig=config)]
        # the certificate is for hook.default.svc, so this succeeds only under that name
        assert await one.webhooks.validate(asked("x", "create")) == ["hi"]
    assert wanted == [("default", "hook", 8443)]


async def test_an_equivalent_version_is_asked_in_its_own_terms(tmp_path: Path) -> None:
    def widgets(version: str) -> Resource:
        return Resource(
            group="example.com",
            version=version,
            plural="widgets",
            singular="widget",
            kind="Widget",
            namespaced=True,
            verbs=("create",),
        )

    async with Configured(tmp_path, {"ok": answers(allowed=True)}, equivalents=lambda resource: [widgets("v1")]) as one:
        rule = {"operations": ["*"], "apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["widgets"]}
        one.hooks["validating"] = [hook(one.server, "ok", rules=[rule])]
        obj = {"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"name": "w"}}
        await one.webhooks.validate(VersionedAttributes("CREATE", widgets("v2"), obj, namespace="default", name="w"))
        ((_, review),) = one.server.asked
        request = review["request"]
        assert request["resource"]["version"] == "v1"
        assert request["requestResource"]["version"] == "v2"
        assert request["object"]["apiVersion"] == "example.com/v1"
        one.hooks["validating"] = [hook(one.server, "ok", rules=[rule], matchPolicy="Exact")]
        await one.webhooks.validate(VersionedAttributes("CREATE", widgets("v2"), obj, namespace="default", name="w"))
        assert len(one.server.asked) == 1


async def test_a_webhook_that_talks_nonsense_is_a_failure_not_a_crash(tmp_path: Path) -> None:
    nonsense = [b"{foo", b"[]", b"5", b'"x"', b"\xff", b'{"kind": "AdmissionReview"}', b'{"response": 5}']
    replies = {f"n{index}": (lambda _, said=said: (200, said)) for index, said in enumerate(nonsense)}
    async with Configured(tmp_path, replies) as one:
        for path in replies:
            one.hooks["validating"] = [hook(one.server, path)]
            with pytest.raises(StatusError, match="failed calling webhook") as refused:
                await one.webhooks.validate(asked("x", "create"))
            assert refused.value.status == 500


def test_a_policys_expressions_are_checked_when_it_is_written() -> None:
    policy = {
        "spec": {
            "variables": [{"name": "ok", "expression": "'text'"}, {"name": "bad", "expression": "nosuch"}],
            "matchConditions": [{"name": "c", "expression": "1"}],
            "validations": [
                {"expression": "variables.ok == 'text'", "messageExpression": "variables.ok"},
                {"expression": "object.data.a", "messageExpression": "object.data.a"},
                {"expression": "variables.nosuch == 1"},
            ],
        }
    }
    assert [(error.field, error.message.split("\n")[0]) for error in policy_errors(policy)] == [
        (
            "spec.variables[1].expression",
            'Invalid value: "nosuch": compilation failed: ERROR: <input>:1:1: '
            "undeclared reference to 'nosuch' (in container '')",
        ),
        ("spec.matchConditions[0].expression", 'Invalid value: "1": must evaluate to bool but got int'),
        ("spec.validations[1].expression", 'Invalid value: "object.data.a": must evaluate to bool but got dyn'),
        (
            "spec.validations[1].messageExpression",
            'Invalid value: "object.data.a": must evaluate to string but got dyn',
        ),
        (
            "spec.validations[2].expression",
            'Invalid value: "variables.nosuch == 1": compilation failed: ERROR: <input>:1:10: '
            "undefined field 'nosuch'",
        ),
    ]
