"""get: one object by name."""

from __future__ import annotations

from torchyard.apiserver.api import Api
from torchyard.apiserver.call import Call
from torchyard.apiserver.store.cache import Record


def find(api: Api, call: Call) -> Record:
    """The record of the object a call names; 404 if there is none."""
    record = api.store.get(api.key(call.resource, call.namespace if call.resource.namespaced else "", call.name))
    if record is None:
        raise call.not_found()
    return record
