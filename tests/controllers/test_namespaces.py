"""The deletion of a namespace when one of its resources cannot be listed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import first_answer

from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import CONFIG_MAPS, NAMESPACES, SECRETS
from torchyard.api.objects import Object
from torchyard.kube.client import Client
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

KIND = "NamespaceDeletionContentFailure"


async def test_a_resource_that_cannot_be_listed_is_reported_and_keeps_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = True
    original = Client.list

    async def list_or_fail(self: Client, ref: GroupVersionResource, *args: Any, **more: Any) -> Any:
        if failing and ref.plural == CONFIG_MAPS.plural and more.get("metadata_only"):
            raise StatusError(500, "InternalError", "conversion webhook failed")
        return await original(self, ref, *args, **more)

    monkeypatch.setattr(Client, "list", list_or_fail)
    settings = PlaneSettings(state=tmp_path / "state", port=0, controllers="namespace-controller", node=False)
    async with Plane(settings) as plane:
        client = plane.client("test")
        await client.create(NAMESPACES, {"metadata": {"name": "x"}})
        for ref in (CONFIG_MAPS, SECRETS):
            await client.create(ref, {"metadata": {"name": "a"}}, "x")
        await client.delete(NAMESPACES, "x")

        async def failure() -> Object | None:
            conditions = (await client.get(NAMESPACES, "x"))["status"].get("conditions") or ()
            return next((each for each in conditions if each["type"] == KIND and each["status"] == "True"), None)

        condition = await first_answer(failure, "the condition")
        assert condition["message"] == "Failed to delete all resource types, 1 remaining: conversion webhook failed"
        assert await client.find(SECRETS, "a", "x") is None
        assert await client.find(CONFIG_MAPS, "a", "x") is not None
        failing = False

        async def is_gone() -> bool:
            return await client.find(NAMESPACES, "x") is None

        await first_answer(is_gone, "the end of the namespace")
