"""Puts the parts together, and the ConfigMap that extension API servers read."""

from __future__ import annotations

import json

from torchyard.api.objects import Object
from torchyard.apiserver.access.authentication import User
from torchyard.apiserver.access.certificate_dir import FRONT_PROXY_CLIENT, CertificateDir
from torchyard.apiserver.aggregation.api_services import ApiServices
from torchyard.apiserver.aggregation.backend import FrontProxyContexts
from torchyard.apiserver.aggregation.controller import AvailabilityController
from torchyard.apiserver.aggregation.forwarding import AggregationProxy
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.routing.router import Router

# Every extension API server reads it, by the Role extension-apiserver-authentication-reader.
AUTHENTICATION_CONFIG = "extension-apiserver-authentication"


def serve_aggregated(
    router: Router, registry: Registry, credentials: CertificateDir, user: User
) -> AvailabilityController:
    """Let the servers of stored APIServices answer requests. Run the returned controller."""
    contexts = FrontProxyContexts(credentials)
    api_services = ApiServices(registry.store)
    proxy = AggregationProxy(registry, api_services, contexts)
    api_services.on_change(lambda: router.aggregate(proxy if api_services else None))
    return AvailabilityController(registry, api_services, contexts, user)


def authentication_config(credentials: CertificateDir) -> Object:
    """Whom extension API servers trust: the authorities of clients and of this server, and the headers it sends."""
    data = {
        "client-ca-file": credentials.authority.read_text(),
        "requestheader-client-ca-file": credentials.front_proxy_authority.read_text(),
        "requestheader-allowed-names": _encoded(FRONT_PROXY_CLIENT),
        "requestheader-username-headers": _encoded("X-Remote-User"),
        "requestheader-uid-headers": _encoded("X-Remote-Uid"),
        "requestheader-group-headers": _encoded("X-Remote-Group"),
        "requestheader-extra-headers-prefix": _encoded("X-Remote-Extra-"),
    }
    metadata = {"name": AUTHENTICATION_CONFIG, "namespace": "kube-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _encoded(value: str) -> str:
    return json.dumps([value])
