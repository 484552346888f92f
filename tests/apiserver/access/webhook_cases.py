"""Webhooks and policies, and the writes that meet them: the same on our side and on a real server.

A case's webhook is chosen by the label `case` of the object written, so that one configuration serves them all.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

from tests.apiserver.access.webhook_server import Reply, WebhookServer, deny, patch_with, reply_with, respond

from torchyard.api.objects import Object

RECORDED = Path(__file__).parent / "webhook_verdicts.json"
V1 = "admission.k8s.io/v1"
SERVICE = {"service": {"name": "nowhere", "namespace": "default", "path": "/p"}}

# name -> (mutating?, the webhook's response, further configuration, kind of write)
WEBHOOKS: dict[str, tuple[bool, Reply, Object, str]] = {
    "allowed": (False, respond(allowed=True), {}, "create"),
    "allowed-with-a-warning": (False, respond(allowed=True, warnings=["careful", 'a "quoted" one']), {}, "create"),
    "denied": (False, deny(message="nope", code=403, reason="Forbidden"), {}, "create"),
    "denied-by-reason": (False, deny(reason="Because"), {}, "create"),
    "denied-without-a-word": (False, deny(), {}, "create"),
    "denied-with-success": (False, deny(code=200, message="x", status="Success"), {}, "create"),
    "denied-in-detail": (
        False,
        deny(code=422, reason="Invalid", message="x", details={"causes": [{"field": "a", "message": "b"}]}),
        {},
        "create",
    ),
    "denied-deletion": (False, deny(message="stay"), {}, "delete"),
    "denied-update": (False, deny(message="stay"), {"rules": [{"operations": ["UPDATE"]}]}, "update"),
    "not-found": (False, reply_with(404, b"nope"), {}, "create"),
    "server-error": (False, reply_with(500, b"boom"), {}, "create"),
    "server-error-ignored": (False, reply_with(500, b"boom"), {"failurePolicy": "Ignore"}, "create"),
    "empty-answer": (False, reply_with(200, b""), {}, "create"),
    "no-response": (False, lambda _: {"apiVersion": V1, "kind": "AdmissionReview"}, {}, "create"),
    "another-uid": (
        False,
        lambda _: {"apiVersion": V1, "kind": "AdmissionReview", "response": {"uid": "x", "allowed": True}},
        {},
        "create",
    ),
    "another-version": (
        False,
        lambda _: {"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "response": {"uid": "x"}},
        {},
        "create",
    ),
    "too-slow": (False, reply_with(200, b"{}", after=2.5), {"timeoutSeconds": 1}, "create"),
    "refused": (False, respond(allowed=True), {"clientConfig": {"url": "https://127.0.0.1:1/x"}}, "create"),
    "unknown-authority": (False, respond(allowed=True), {"clientConfig": {"caBundle": None}}, "create"),
    "no-such-service": (False, respond(allowed=True), {"clientConfig": {"url": None, **SERVICE}}, "create"),
    "dry-run": (False, respond(allowed=True), {"sideEffects": "NoneOnDryRun"}, "dry-run"),
    "other-operation": (False, deny(), {"rules": [{"operations": ["UPDATE", "DELETE"]}]}, "create"),
    "other-group": (False, deny(), {"rules": [{"apiGroups": ["apps"]}]}, "create"),
    "other-version": (False, deny(), {"rules": [{"apiVersions": ["v2"]}]}, "create"),
    "other-resource": (False, deny(), {"rules": [{"resources": ["pods", "configmaps/status"]}]}, "create"),
    "every-resource": (False, deny(), {"rules": [{"resources": ["*"]}]}, "create"),
    "everything": (
        False,
        deny(),
        {"rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]},
        "create",
    ),
    "second-rule": (False, deny(), {"rules": [{"resources": ["pods"]}, {}]}, "create"),
    "cluster-scope": (False, deny(), {"rules": [{"scope": "Cluster"}]}, "create"),
    "namespaced-scope": (False, deny(), {"rules": [{"scope": "Namespaced"}]}, "create"),
    "other-namespace": (False, deny(), {"namespaceSelector": {"matchLabels": {"a": "b"}}}, "create"),
    "this-namespace": (
        False,
        deny(),
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}},
        "create",
    ),
    "condition-false": (
        False,
        deny(),
        {"matchConditions": [{"name": "a", "expression": 'object.data.a == "z"'}]},
        "create",
    ),
    "condition-true": (
        False,
        deny(),
        {
            "matchConditions": [
                {"name": "a", "expression": 'object.data.a == "b" && oldObject == null'},
                {"name": "b", "expression": 'request.operation == "CREATE" && request.resource.resource != ""'},
            ]
        },
        "create",
    ),
    "condition-failed": (
        False,
        deny(),
        {"matchConditions": [{"name": "a", "expression": 'object.data.zz == "z"'}]},
        "create",
    ),
    "condition-failed-ignored": (
        False,
        deny(),
        {"failurePolicy": "Ignore", "matchConditions": [{"name": "a", "expression": 'object.data.zz == "z"'}]},
        "create",
    ),
    "condition-false-beats-failed": (
        False,
        deny(),
        {
            "matchConditions": [
                {"name": "a", "expression": 'object.data.zz == "z"'},
                {"name": "b", "expression": "false"},
            ]
        },
        "create",
    ),
    "patched": (True, patch_with({"op": "add", "path": "/data/x", "value": "y"}), {}, "create"),
    "patched-update": (True, patch_with({"op": "add", "path": "/data/x", "value": "y"}), {}, "update"),
    "patched-with-nothing": (True, patch_with(), {}, "create"),
    "patched-with-an-unknown-field": (True, patch_with({"op": "add", "path": "/foo", "value": 5}), {}, "create"),
    "patched-with-a-wrong-type": (True, patch_with({"op": "add", "path": "/data/x", "value": 5}), {}, "create"),
    "patch-of-an-unknown-type": (True, patch_with({"op": "remove", "path": "/data"}, kind="Foo"), {}, "create"),
    "patch-without-a-type": (
        True,
        respond(allowed=True, patch=base64.b64encode(b"[]").decode()),
        {},
        "create",
    ),
    "type-without-a-patch": (True, respond(allowed=True, patchType="JSONPatch"), {}, "create"),
    "mutation-denied": (True, deny(message="nope"), {}, "create"),
    "mutation-warned": (True, respond(allowed=True, warnings=["hm"]), {}, "create"),
}

# name -> (the policy's specification, the binding's, how the write is made)
ZZ = 'object.data.a == "zz"'
POLICIES: dict[str, tuple[Object, Object, str]] = {
    "policy-holds": ({"validations": [{"expression": 'object.data.a == "b"'}]}, {}, "create"),
    "policy-broken": ({"validations": [{"expression": ZZ}]}, {}, "create"),
    "policy-message": ({"validations": [{"expression": ZZ, "message": "must be zz"}]}, {}, "create"),
    "policy-message-expression": (
        {"validations": [{"expression": ZZ, "message": "m", "messageExpression": "'got ' + object.data.a"}]},
        {},
        "create",
    ),
    "policy-reason": ({"validations": [{"expression": ZZ, "message": "m", "reason": "Forbidden"}]}, {}, "create"),
    "policy-warns": (
        {"validations": [{"expression": ZZ, "message": "m"}]},
        {"validationActions": ["Warn"]},
        "create",
    ),
    "policy-audits": (
        {"validations": [{"expression": ZZ, "message": "m"}]},
        {"validationActions": ["Audit"]},
        "create",
    ),
    "policy-fails": ({"validations": [{"expression": 'object.data.q == "z"'}]}, {}, "create"),
    "policy-fails-ignored": (
        {"failurePolicy": "Ignore", "validations": [{"expression": 'object.data.q == "z"'}]},
        {},
        "create",
    ),
    "policy-of-two": (
        {"validations": [{"expression": ZZ, "message": "one"}, {"expression": ZZ, "message": "two"}]},
        {},
        "create",
    ),
    "policy-variables": (
        {
            "variables": [
                {"name": "x", "expression": "object.data.a"},
                {"name": "y", "expression": "string(variables.x) + '!'"},
            ],
            "validations": [{"expression": "variables.y == 'z'", "messageExpression": "variables.y"}],
        },
        {},
        "create",
    ),
    "policy-condition": (
        {
            "matchConditions": [{"name": "c", "expression": 'object.data.a == "q"'}],
            "validations": [{"expression": ZZ}],
        },
        {},
        "create",
    ),
    "policy-request": (
        {
            "validations": [
                {
                    "expression": 'oldObject == null && request.namespace == "default" && has(object.data)'
                    ' && request.resource.resource == "configmaps" && !request.dryRun && !has(object.foo)'
                    ' && namespaceObject.metadata.name == "default" && request.userInfo.username != ""',
                }
            ]
        },
        {},
        "create",
    ),
    "policy-update": (
        {"validations": [{"expression": "object.data == oldObject.data", "message": "data is frozen"}]},
        {},
        "update",
    ),
    "policy-delete": (
        {"validations": [{"expression": "object == null && oldObject.data.a == 'q'", "message": "no"}]},
        {},
        "delete",
    ),
    "policy-param": (
        {
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "validations": [{"expression": "object.data.a == params.data.wanted", "message": "not as wanted"}],
        },
        {"paramRef": {"name": "parameters", "namespace": "default", "parameterNotFoundAction": "Deny"}},
        "create",
    ),
    "policy-param-missing": (
        {
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "validations": [{"expression": "params.data.x == 'z'"}],
        },
        {"paramRef": {"name": "nosuch", "namespace": "default", "parameterNotFoundAction": "Deny"}},
        "create",
    ),
    "policy-param-not-needed": (
        {
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "validations": [{"expression": "params.data.x == 'z'"}],
        },
        {"paramRef": {"name": "nosuch", "namespace": "default", "parameterNotFoundAction": "Allow"}},
        "create",
    ),
    "policy-excluded": (
        {
            "matchConstraints": {
                "excludeResourceRules": [
                    {"operations": ["*"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["configmaps"]}
                ]
            },
            "validations": [{"expression": ZZ}],
        },
        {},
        "create",
    ),
    "policy-bound-elsewhere": (
        {"validations": [{"expression": ZZ}]},
        {"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}},
        "create",
    ),
}

_RULE = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}


def _selected(name: str) -> Object:
    return {"objectSelector": {"matchLabels": {"case": name}}}


def configurations(server: WebhookServer) -> dict[str, Object]:
    """Both kinds of configuration, by the name of their resource."""
    hooks: dict[bool, list[Object]] = {True: [], False: []}
    for name, (mutating, _, more, _) in WEBHOOKS.items():
        config = {**server.config(name), **(more.get("clientConfig") or {})}
        rules = [{**_RULE, **rule} for rule in more.get("rules") or [{}]]
        defaults = {"timeoutSeconds": 10, "failurePolicy": "Fail", "matchPolicy": "Equivalent"}
        hook = {
            "name": f"{name}.example.com",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **defaults,
            **_selected(name),
            **{key: value for key, value in more.items() if key not in ("clientConfig", "rules")},
            "clientConfig": {key: value for key, value in config.items() if value is not None},
            "rules": rules,
        }
        hooks[mutating].append(hook)
    return {
        f"{kind.lower()}webhookconfigurations": {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{kind}WebhookConfiguration",
            "metadata": {"name": "cases"},
            "webhooks": hooks[kind == "Mutating"],
        }
        for kind in ("Mutating", "Validating")
    }


def policies() -> tuple[list[Object], list[Object]]:
    """All policies and their bindings."""
    policy_objects: list[Object] = []
    bound: list[Object] = []
    for name, (spec, binding, _) in POLICIES.items():
        constraints = {"resourceRules": [_RULE], **_selected(name), **(spec.get("matchConstraints") or {})}
        common = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
        policy = {"failurePolicy": "Fail", **spec, "matchConstraints": constraints}
        policy_objects.append({**common, "kind": "ValidatingAdmissionPolicy", "spec": policy})
        in_force = {"policyName": name, "validationActions": ["Deny"], **binding}
        bound.append({**common, "kind": "ValidatingAdmissionPolicyBinding", "spec": in_force})
    return policy_objects, bound


_GOOD = {"resourceRules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]}
_TRUE = [{"expression": "true"}]
# Specifications of policies and bindings that are, or are not, taken.
WRITTEN_POLICIES: dict[str, Object] = {
    "good": {"matchConstraints": _GOOD, "validations": _TRUE},
    "empty": {},
    "nothing matched": {"matchConstraints": {}, "validations": []},
    "an empty rule": {"matchConstraints": {"resourceRules": [{}]}, "validations": [{"expression": ""}]},
    "unknown words": {
        "matchConstraints": {
            "resourceRules": [
                {
                    "operations": ["FOO", "*"],
                    "apiGroups": ["*", "a"],
                    "apiVersions": [],
                    "resources": ["pods"],
                    "scope": "x",
                }
            ],
            "matchPolicy": "x",
        },
        "validations": [{"expression": "true", "reason": "Foo", "message": " ", "messageExpression": " "}],
        "failurePolicy": "x",
    },
    "line breaks": {
        "matchConstraints": _GOOD,
        "validations": [{"expression": "true\n||true"}, {"expression": "true", "message": "a\nb"}],
    },
    "names": {
        "matchConstraints": _GOOD,
        "variables": [{"name": "a b", "expression": "1"}, {"name": "x", "expression": ""}],
        "matchConditions": [
            {"name": "a b", "expression": "true"},
            {"name": "c", "expression": ""},
            {"name": "c", "expression": "1"},
        ],
        "validations": _TRUE,
    },
    "an empty parameter kind": {
        "paramKind": {"apiVersion": "", "kind": ""},
        "matchConstraints": _GOOD,
        "validations": [{"expression": "params.x == 1"}],
    },
    "no parameter kind": {"matchConstraints": _GOOD, "validations": [{"expression": "params.x == 1"}]},
    "types": {
        "matchConstraints": _GOOD,
        "validations": [
            {"expression": "object.a"},
            {"expression": "1"},
            {"expression": "true", "messageExpression": "1"},
        ],
    },
    "annotations": {
        "matchConstraints": _GOOD,
        "auditAnnotations": [
            {"key": "a", "valueExpression": "'x'"},
            {"key": "a b", "valueExpression": "'x'"},
            {"key": "", "valueExpression": ""},
        ],
    },
}
WRITTEN_BINDINGS: dict[str, Object] = {
    "good": {"policyName": "p", "validationActions": ["Deny"]},
    "empty": {},
    "unknown words": {"policyName": "a b", "validationActions": ["Foo", "Deny", "Deny", "Warn"]},
    "an empty reference": {"policyName": "p", "validationActions": ["Deny"], "paramRef": {}},
    "a reference too many": {
        "policyName": "p",
        "validationActions": ["Deny"],
        "paramRef": {"name": "a", "selector": {}, "parameterNotFoundAction": "x"},
    },
    "a bad selector": {
        "policyName": "p",
        "validationActions": ["Deny"],
        "matchResources": {"resourceRules": [_RULE], "namespaceSelector": {"matchLabels": {"a": "b c"}}},
    },
}


def documents() -> dict[str, tuple[str, Object]]:
    """What is only written, not put in force, by name: its resource and itself."""
    by_name: dict[str, tuple[str, Object]] = {}
    for kind, plural, written in (
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies", WRITTEN_POLICIES),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", WRITTEN_BINDINGS),
    ):
        for name, spec in written.items():
            document = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "p"}}
            by_name[f"{kind}: {name}"] = plural, {**document, "spec": spec}
    hook = {
        "name": "a.example.com",
        "clientConfig": {"url": "https://127.0.0.1/"},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "rules": [_RULE],
        "matchConditions": [{"name": "a", "expression": "foo"}, {"name": "b", "expression": "1"}],
    }
    for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"):
        document = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "p"}}
        by_name[f"{kind}: conditions"] = f"{kind.lower()}s", {**document, "webhooks": [hook]}
    return by_name


PARAMETERS = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "parameters", "namespace": "default"},
    "data": {"wanted": "something else"},
}


def config_map(name: str, **data: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "labels": {"case": name}},
        "data": {"a": "b", **data},
    }


def denial(code: int, reason: str, message: str, details: Object | None, port: int) -> Object:
    """A denial without the parts that differ from run to run."""
    text = json.dumps({"code": code, "reason": reason, "message": message, "details": details or {}})
    return dict(json.loads(text.replace(f":{port}/", ":PORT/")))


def recorded() -> dict[str, Object]:
    return dict(json.loads(RECORDED.read_text()))
