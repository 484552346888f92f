"""OpenAPI: an index of group-versions, and for each its kinds and operations.

kubectl reads these documents before it writes (`create`, `apply`, `edit`), to merge (`apply`, `diff`) and to explain.
They contain only what is served, so they are a fraction of a real server's. Pure functions; the caller caches the
results until the catalog changes.

Read in this order:
- `document`: the index, and the document of a group-version;
- `paths`: the operations on a resource and its subresources;
- `schemas`: built-in definitions, and custom resources;
- `swagger`: OpenAPI version 2, for old clients.
"""

from torchyard.apiserver.wire.openapi.document import document, fingerprint, index, path_of
from torchyard.apiserver.wire.openapi.swagger import V2_PROTOBUF, V2_PROTOBUF_REQUEST, V2_PROTOBUF_RESPONSE, swagger

__all__ = [
    "V2_PROTOBUF",
    "V2_PROTOBUF_REQUEST",
    "V2_PROTOBUF_RESPONSE",
    "document",
    "fingerprint",
    "index",
    "path_of",
    "swagger",
]
