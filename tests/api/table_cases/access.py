"""Role bindings and admission."""

from __future__ import annotations

from torchyard.api.objects import Object

RBAC = "rbac.authorization.k8s.io"
SUBJECTS = [
    {"kind": "User", "apiGroup": RBAC, "name": "u1"},
    {"kind": "Group", "apiGroup": RBAC, "name": "g1"},
    {"kind": "User", "apiGroup": RBAC, "name": "u2"},
    {"kind": "ServiceAccount", "namespace": "ns", "name": "sa"},
]
BINDINGS: list[Object] = [
    {"metadata": {"name": "empty"}, "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"}},
    {
        "metadata": {"name": "full"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"},
        "subjects": SUBJECTS,
    },
]
WEBHOOK = {
    "name": "a.example.com",
    "admissionReviewVersions": ["v1"],
    "sideEffects": "None",
    "clientConfig": {"url": "https://127.0.0.1:1"},
    "rules": [],
}
MATCH = {"resourceRules": [{"apiGroups": ["x"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["y"]}]}
ADMISSION: dict[str, list[Object]] = {
    "mutatingwebhookconfigurations": [{"metadata": {"name": "one"}, "webhooks": [WEBHOOK]}],
    "validatingwebhookconfigurations": [{"metadata": {"name": "none"}}],
    "validatingadmissionpolicies": [
        {
            "metadata": {"name": "plain.example.com"},
            "spec": {"validations": [{"expression": "true"}], "matchConstraints": MATCH},
        },
        {
            "metadata": {"name": "param.example.com"},
            "spec": {
                "validations": [{"expression": "true"}],
                "matchConstraints": MATCH,
                "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            },
        },
    ],
    "validatingadmissionpolicybindings": [
        {
            "metadata": {"name": "plain"},
            "spec": {"policyName": "plain.example.com", "validationActions": ["Deny"]},
        },
        {
            "metadata": {"name": "param"},
            "spec": {
                "policyName": "param.example.com",
                "validationActions": ["Deny"],
                "paramRef": {"name": "c", "namespace": "tables", "parameterNotFoundAction": "Deny"},
            },
        },
        {
            "metadata": {"name": "here"},
            "spec": {
                "policyName": "param.example.com",
                "validationActions": ["Deny"],
                "paramRef": {"name": "c", "parameterNotFoundAction": "Deny"},
            },
        },
    ],
}
