"""Requests of kubelets for client certificates, approved for those who may create them by RBAC."""

from __future__ import annotations

from typing import Literal

from torchyard.api.access.certificate_requests import APPROVED, KUBELET_CLIENT_SIGNER
from torchyard.api.objects import Object
from torchyard.core.certificate.request import CertificateRequest
from torchyard.core.certificate.signing import refusal

# The subresource of certificatesigningrequests whose creation RBAC has to allow.
Permission = Literal["selfnodeclient", "nodeclient"]
_MESSAGES: dict[Permission, str] = {
    "selfnodeclient": "Auto approving self kubelet client certificate after SubjectAccessReview.",
    "nodeclient": "Auto approving kubelet client certificate after SubjectAccessReview.",
}


def permissions(csr: Object, request: CertificateRequest) -> list[Permission]:
    """What the requester may have been allowed: its own node's certificate, or any node's."""
    spec = csr["spec"]
    signer = spec["signerName"]
    if signer != KUBELET_CLIENT_SIGNER or refusal(signer, request, spec["usages"]):
        return []
    is_own = spec.get("username") == request.common_name
    return ["selfnodeclient", "nodeclient"] if is_own else ["nodeclient"]


def access_review(csr: Object, permission: Permission) -> Object:
    """The SubjectAccessReview that asks for a permission of the requester."""
    spec = csr["spec"]
    return {
        "spec": {
            "user": spec.get("username") or "",
            "uid": spec.get("uid") or "",
            "groups": spec.get("groups") or [],
            "extra": spec.get("extra") or {},
            "resourceAttributes": {
                "group": "certificates.k8s.io",
                "resource": "certificatesigningrequests",
                "verb": "create",
                "subresource": permission,
                "version": "*",
            },
        }
    }


def with_approval_of(csr: Object, permission: Permission) -> Object:
    approved = {"type": APPROVED, "status": "True", "reason": "AutoApproved", "message": _MESSAGES[permission]}
    status = csr.get("status") or {}
    return {**csr, "status": {**status, "conditions": [*(status.get("conditions") or ()), approved]}}
