"""The registered APIServices, by group and version, and what their servers serve."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from torchyard.api.objects import Object
from torchyard.apiserver.store.store import Store
from torchyard.apiserver.store.watch import StoreEvent

GROUP, PLURAL = "apiregistration.k8s.io", "apiservices"
COLLECTION = f"/{PLURAL}.{GROUP}/"
AVAILABLE = "Available"


class ServedApi(NamedTuple):
    """A group and version of an extension API server, for discovery."""

    group: str
    version: str
    resources: list[Object]  # entries of its APIResourceList, as of the last time it could be read
    is_current: bool


class ApiServices:
    """Follows the store."""

    def __init__(self, store: Store) -> None:
        self._by_group_version: dict[tuple[str, str], Object] = {}
        self._resources: dict[tuple[str, str], list[Object]] = {}
        self._on_change: Callable[[], None] = lambda: None
        store.listen(COLLECTION, self._follow)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` now, and when the documents of discovery change."""
        self._on_change = listener
        listener()

    def _follow(self, event: StoreEvent) -> None:
        api_service = event.record.object()
        key = group_version(api_service)
        before = self._by_group_version.get(key)
        if event.change == "DELETED" or not api_service["spec"].get("service"):
            self._by_group_version.pop(key, None)
            self._resources.pop(key, None)
        else:
            self._by_group_version[key] = api_service
        now = self._by_group_version.get(key)
        if (before is None) != (now is None) or (before and now and is_available(before) != is_available(now)):
            self._on_change()

    def __bool__(self) -> bool:
        return bool(self._by_group_version)

    def find(self, group: str, version: str) -> Object | None:
        """The APIService that serves a group and version; None if this server does."""
        return self._by_group_version.get((group, version))

    def set_resources(self, key: tuple[str, str], resources: list[Object]) -> None:
        if self._resources.get(key) != resources:
            self._resources[key] = resources
            self._on_change()

    def served(self) -> Iterator[ServedApi]:
        """All of them, the groups with the highest priority first, in each the versions with the highest priority."""
        for key, api_service in sorted(self._by_group_version.items(), key=_by_priority):
            yield ServedApi(*key, self._resources.get(key, []), is_available(api_service))


def _by_priority(item: tuple[tuple[str, str], Object]) -> tuple[int, str, int, str]:
    (group, version), api_service = item
    spec = api_service["spec"]
    return (-int(spec["groupPriorityMinimum"]), group, -int(spec["versionPriority"]), version)


def group_version(api_service: Object) -> tuple[str, str]:
    spec = api_service["spec"]
    return spec.get("group") or "", spec.get("version") or ""


def is_available(api_service: Object) -> bool:
    conditions = (api_service.get("status") or {}).get("conditions") or ()
    return any((each["type"], each["status"]) == (AVAILABLE, "True") for each in conditions)
