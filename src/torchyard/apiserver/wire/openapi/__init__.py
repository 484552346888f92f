"""OpenAPI: an index of group-versions, and for each of them the kinds and the operations on them.

kubectl reads these before it writes (`create`, `apply`, `edit`), to merge (`apply`, `diff`) and to explain. Documents
hold what is served and nothing else: they are a fraction of a real server's and as much faster to read. Pure
functions; the caller keeps what they made for as long as the catalog does not change.
"""

from torchyard.apiserver.wire.openapi.document import document, fingerprint, index, path_of
from torchyard.apiserver.wire.openapi.swagger import V2_PROTOBUF, V2_PROTOBUF_ANSWER, V2_PROTOBUF_REQUEST, swagger

__all__ = [
    "V2_PROTOBUF",
    "V2_PROTOBUF_ANSWER",
    "V2_PROTOBUF_REQUEST",
    "document",
    "fingerprint",
    "index",
    "path_of",
    "swagger",
]
