"""Where pods/proxy and services/proxy send a request: ports that no pod can have."""

from __future__ import annotations

import pytest

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.apiserver.proxy.location import pod_target, service_target

POD: Object = {"metadata": {"name": "p"}, "spec": {"containers": []}, "status": {"podIP": "10.1.2.3"}}
SERVICE: Object = {"metadata": {"name": "p"}, "spec": {"ports": [{"port": 80}]}}


class Lister:
    def get(self, group: str, plural: str, namespace: str, name: str) -> Object:
        return POD if plural == "pods" else SERVICE

    def list(self, group: str, plural: str, namespace: str = "") -> list[Object]:
        return []


@pytest.mark.parametrize("target", [pod_target, service_target])
@pytest.mark.parametrize("port", ["65536", "9" * 5000, "\u00b2"])
def test_a_port_that_does_not_exist_is_unavailable(target: type, port: str) -> None:
    with pytest.raises(StatusError) as refused:
        target(Lister(), "default", f"p:{port}")
    assert refused.value.status in (400, 503)
