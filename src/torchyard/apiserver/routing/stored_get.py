"""get, answered with the stored bytes: the most frequent request of all, without a context and without an await.

Only what is that simple is answered here: an object in the version in which it is stored, as JSON, for a user who may
read it. Everything else, every error included, is left to the router, which answers it in the general way.
"""

from __future__ import annotations

from typing import NamedTuple

from torchyard.apiserver.access.access_control import AccessControl
from torchyard.apiserver.access.authentication import MASTERS, User
from torchyard.apiserver.access.rbac import AuthorizerAttributes
from torchyard.apiserver.metrics.requests import RequestLabels
from torchyard.apiserver.registry.catalog import collection_key, object_key
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.request.route import parse
from torchyard.apiserver.routing.aggregation import Aggregation
from torchyard.apiserver.store.cache import Collection
from torchyard.apiserver.virtual.handlers import VIRTUAL_HANDLERS
from torchyard.apiserver.wire.negotiate import accepts_plain

_MAX_PREFIXES = 1024
_MAX_PATH = 512


class _Prefix(NamedTuple):
    """What all gets have in common whose paths differ only in the name of the object."""

    attributes: AuthorizerAttributes  # without the name
    collection: Collection
    key: str  # without the name
    schema_revision: int
    labels: RequestLabels


class StoredObject(NamedTuple):
    data: bytes
    labels: RequestLabels  # of the request's metrics


class StoredGets:
    def __init__(self, registry: Registry, access_control: AccessControl) -> None:
        self._registry = registry
        self._authorizer = access_control.authorizer
        self._prefixes: dict[str, _Prefix | None] = {}  # None: not answered here
        self.aggregation: Aggregation | None = None
        registry.catalog.on_change(self._prefixes.clear)

    def find(self, path: str, user: User, accept: str) -> StoredObject | None:
        """The object at a path; None if the router must answer."""
        collection_path, _, name = path.rpartition("/")
        try:
            prefix = self._prefixes[collection_path]
        except KeyError:
            prefix = self._add_prefix(collection_path, name, path)
        if prefix is None:
            return None
        record = prefix.collection.get(prefix.key + name)
        if record is None or record.rev < prefix.schema_revision:
            return None
        if not accepts_plain(accept) or not self._may_get(user, prefix.attributes, name):
            return None
        return StoredObject(record.data, prefix.labels)

    def _may_get(self, user: User, attributes: AuthorizerAttributes, name: str) -> bool:
        return MASTERS in user.groups or self._authorizer.authorize(user, attributes._replace(name=name)).allowed

    def _add_prefix(self, collection_path: str, name: str, path: str) -> _Prefix | None:
        if not name or len(path) > _MAX_PATH:
            return None
        if len(self._prefixes) >= _MAX_PREFIXES:
            self._prefixes.clear()
        prefix = self._prefixes[collection_path] = self._read(path)
        return prefix

    def _read(self, path: str) -> _Prefix | None:
        route = parse("GET", path)
        if route is None or (route.verb, route.prefix, route.subresource) != ("get", "", "") or not route.is_canonical:
            return None
        if self.aggregation is not None and self.aggregation.find(route.group, route.version) is not None:
            return None
        catalog = self._registry.catalog
        resource = catalog.find(route.group, route.version, route.plural)
        # The path of a Namespace names it twice, as the object and as the namespace that it is in.
        if resource is None or resource.namespaced != bool(route.namespace):
            return None
        if resource.has_conversion_webhook or catalog.storage(resource) is not resource or "get" not in resource.verbs:
            return None
        if (resource.group, resource.plural) in VIRTUAL_HANDLERS:
            return None
        if resource.deprecation:
            return None
        return _Prefix(
            AuthorizerAttributes("get", route.group, route.plural, namespace=route.namespace),
            self._registry.store.collection(collection_key(resource)),
            object_key(resource, route.namespace, ""),
            catalog.schema_revision(resource),
            ("get", route.group, route.version, route.plural, "", "200"),
        )
