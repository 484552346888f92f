"""The volume that the server mounts into nearly every pod: service account token, CA certificate, namespace."""

from __future__ import annotations

from typing import Final

from torchyard.api.objects import Object

TOKEN_SECONDS = 3607
ROOT_CA = "kube-root-ca.crt"


def token_projection() -> Object:
    """Return the projected volume source."""
    namespace = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    return {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
            {"configMap": {"name": ROOT_CA, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": namespace}]}},
        ],
        "defaultMode": 0o644,
    }


# For comparison: a volume that equals it needs no validation, and nearly every pod has one.
TOKEN_PROJECTION: Final = token_projection()
