"""Which controllers this plane has, and how each is wired. Names are those of kube-controller-manager."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from typing import Any

from torchyard.apiserver.api import Api
from torchyard.apiserver.catalog import Catalog
from torchyard.apiserver.store.events import Event
from torchyard.controllers.endpointslices import EndpointSliceController
from torchyard.controllers.garbage import GarbageCollector
from torchyard.controllers.mirror import OperatorMirror
from torchyard.controllers.namespace_content import default_account, root_authority
from torchyard.controllers.namespaces import NamespaceController
from torchyard.controllers.pytorchjob import PyTorchJobController
from torchyard.controllers.quotas import QuotaController
from torchyard.core.pytorchjob.view import EMBEDDED_GANG
from torchyard.core.pytorchjob.view import Settings as PyTorchJobSettings
from torchyard.kube.client import Client, Ref
from torchyard.kube.recorder import Recorder

KNOWN = (
    "endpointslice-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "pytorchjob",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
)

Work = Coroutine[Any, Any, None]


def controllers(client: Client, api: Api, chosen: frozenset[str], *, authority: str) -> Iterator[tuple[str, Work]]:
    """The coroutines of the chosen controllers, by name."""
    recorder = Recorder(client, "torchyard")
    yield "events", recorder.run()
    namespaces = NamespaceController(client, lambda: _namespaced(api.catalog), api.clock)
    yield "namespace informer", namespaces.informer.run()
    if "namespace-controller" in chosen:
        yield "namespace-controller", namespaces.controller.run()
    if "serviceaccount-controller" in chosen:
        accounts = default_account(client, namespaces.informer)
        yield "serviceaccount informer", accounts.informer.run()
        yield "serviceaccount-controller", accounts.controller.run()
    if "root-ca-certificate-publisher-controller" in chosen:
        maps = root_authority(client, namespaces.informer, authority)
        yield "root-ca informer", maps.informer.run()
        yield "root-ca-certificate-publisher-controller", maps.controller.run()
    if "resourcequota-controller" in chosen:
        quotas = QuotaController(client, lambda group, plural: _served(api.catalog, group, plural), api.clock)
        api.store.listen("", lambda event: _count(quotas, event))
        yield "resourcequota informer", quotas.informer.run()
        yield "resourcequota-controller", quotas.controller.run()
    if "endpointslice-controller" in chosen:
        slices = EndpointSliceController(client)
        for informer in slices.informers:
            yield f"{informer.ref.plural} informer", informer.run()
        yield "endpointslice-controller", slices.controller.run()
    if "pytorchjob" in chosen:
        # On one machine the master is there in a moment; asking often costs nothing.
        settings = PyTorchJobSettings(gang_scheduler=EMBEDDED_GANG, init_tries=1000, init_pause_seconds=0.2)
        yield "pytorchjob", PyTorchJobController(client, settings, clock=api.clock).run()
        mirror = OperatorMirror(client, api.clock)
        yield "operator mirror informer", mirror.informer.run()
        yield "operator mirror", mirror.controller.run()
    if "garbage-collector-controller" in chosen:
        collector = GarbageCollector(client, lambda version, kind: _resource_of(api.catalog, version, kind), recorder)
        api.store.listen("", lambda event: _tell(collector, api.catalog, event))
        yield "garbage-collector-controller", collector.run()


def _resource_of(catalog: Catalog, api_version: str, kind: str) -> Ref | None:
    group, _, version = api_version.rpartition("/")
    found = catalog.kind(group, version, kind)
    return Ref(found.group, found.version, found.plural, found.namespaced) if found else None


def _served(catalog: Catalog, group: str, plural: str) -> Ref | None:
    found = next((one for one in catalog.stored() if (one.group, one.plural) == (group, plural)), None)
    return Ref(found.group, found.version, found.plural, found.namespaced) if found else None


def _count(quotas: QuotaController, event: Event) -> None:
    """Tell the quota controller what changed where, as the key says it: `/jobs.batch/namespace/name`."""
    _, collection, namespace, _ = event.record.key.split("/", 3)
    if namespace and len(quotas.informer):
        plural, _, group = collection.partition(".")
        quotas.observe(group, plural, namespace)


# Metadata that makes an object matter to the garbage collector, as it stands in its bytes.
_MATTERS = (b'"ownerReferences":', b'"foregroundDeletion"', b'"orphan"')


def _tell(collector: GarbageCollector, catalog: Catalog, event: Event) -> None:
    """Tell the collector of a change, if the object is owned, waits for its dependents, or is gone."""
    is_gone = event.change == "DELETED"
    data, before = event.record.data, event.previous.data if event.previous else b""
    if not is_gone and not any(mark in data or mark in before for mark in _MATTERS):
        return
    obj = event.record.object()
    ref = _resource_of(catalog, obj["apiVersion"], obj["kind"])
    if ref is not None:
        collector.observe(ref, obj["kind"], obj["metadata"], is_gone=is_gone)


def _namespaced(catalog: Catalog) -> list[Ref]:
    """Everything a namespace can hold; events last, so that they can tell of the rest."""
    found = [
        Ref(one.group, one.version, one.plural)
        for one in catalog.stored()
        if one.namespaced and {"list", "delete"} <= set(one.verbs)
    ]
    return sorted(found, key=lambda ref: ref.plural == "events")
