"""What a create and a delete of an object do not pay for: code of proxies, reports and conversions is not called."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import orjson

from torchyard.api.resources import Resource
from torchyard.kube import kubeconfig
from torchyard.kube.http import HttpTransport
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

PATH = "/api/v1/namespaces/default/configmaps"
# Parts of the names of modules and functions.
OTHERS = (
    "status_report",
    "reported_job",
    "converted_",
    "crd/conversion",
    "has_conversion",
    "prox",
    "service_",
    "_in_requested",
    "in_version",
    "in_storage",
)
OTHER_CLASSES = ("ReceivedRequest", "ProxiedHead")


async def test_a_create_and_a_delete_call_nothing_of_other_features(tmp_path: Path) -> None:
    called: set[str] = set()

    def record(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and "torchyard/api" in frame.f_code.co_filename:
            called.add(f"{frame.f_code.co_filename.rpartition('torchyard/')[2]}:{frame.f_code.co_qualname}")

    async with Plane(PlaneSettings(state=tmp_path / "state", port=0, controllers="-*", node=False)) as plane:
        transport = HttpTransport(kubeconfig.load(tmp_path / "state" / "kubeconfig"), user_agent="test")
        body = orjson.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
        try:
            for recorder in (None, record):  # caches are filled first
                sys.setprofile(recorder)
                created = await transport.request("POST", PATH, body=body, content_type="application/json")
                deleted = await transport.request("DELETE", f"{PATH}/a")
                assert (created.status, deleted.status) == (201, 200)
        finally:
            sys.setprofile(None)
            await transport.close()
        assert plane.url
    assert any(name.endswith(":Router.handle") for name in called)
    names = {name for name in called if any(part in name for part in (*OTHERS, *OTHER_CLASSES))}
    assert names == set()


def test_whether_a_webhook_converts_is_a_field() -> None:
    """It is read several times for each request."""
    assert Resource.__dataclass_fields__["has_conversion_webhook"].default is False
