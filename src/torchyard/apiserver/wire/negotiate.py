"""The response format that a client accepts: JSON or YAML; the object, a Table or metadata only."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

from torchyard.api import errors

Form = Literal["object", "table", "metadata"]
# What a response holds: objects that are served as tables and metadata too, or a document that is not.
Content = Literal["object", "list", "document"]

# What a real server lists in a 406, without protobuf.
ACCEPTED = ("application/json", "application/yaml")


class ResponseFormat(NamedTuple):
    form: Form = "object"
    version: str = "v1"  # of meta.k8s.io, for tables and metadata
    yaml: bool = False

    @property
    def content_type(self) -> str:
        """As upstream: a Table, too, has the plain JSON type."""
        return "application/yaml" if self.yaml else "application/json"


PLAIN = ResponseFormat()
_ONLY_FOR: dict[str, Content] = {"PartialObjectMetadata": "object", "PartialObjectMetadataList": "list"}
_FORMS: dict[str, Form] = {
    "Table": "table",
    "PartialObjectMetadata": "metadata",
    "PartialObjectMetadataList": "metadata",
}


@lru_cache(maxsize=256)
def negotiate(accept: str) -> ResponseFormat:
    """The first format of an Accept header that is served; raises 406 if none is."""
    if not accept:
        return PLAIN
    for clause in accept.split(","):
        media, _, rest = clause.strip().partition(";")
        media = media.strip().lower()
        if media not in ("application/json", "application/*", "*/*", "application/yaml"):
            continue
        parameters = dict(_pair(parameter) for parameter in rest.split(";") if "=" in parameter)
        kind = parameters.get("as")
        if kind is None:
            return ResponseFormat(yaml=media == "application/yaml")
        form = _FORMS.get(kind)
        if form and parameters.get("g") == "meta.k8s.io" and parameters.get("v") in ("v1", "v1beta1"):
            return ResponseFormat(form, parameters["v"])
    raise errors.not_acceptable(ACCEPTED)


def check_document(accept: str) -> None:
    """Raise 406 for a client that accepts only tables or metadata of something that is neither object nor list."""
    if not accepts_document(accept):
        raise errors.not_acceptable(ACCEPTED)


@lru_cache(maxsize=256)
def accepts_document(accept: str) -> bool:
    """Whether a client accepts JSON or YAML that is neither a table nor only metadata."""
    if not accept:
        return True
    clauses = [clause for clause in accept.split(",") if "as=" not in clause.replace(" ", "")]
    try:
        return bool(clauses) and negotiate(",".join(clauses)).form == "object"
    except errors.StatusError:
        return False


@lru_cache(maxsize=256)
def prefers_yaml(accept: str) -> bool:
    """Whether a client asks for YAML, for errors too."""
    try:
        return negotiate(accept).yaml
    except errors.StatusError:
        return False


def check_metadata(accept: str, content: Content, go_type: str) -> None:
    """Raise 406 for the metadata of an object where there is a list, and the other way round."""
    kind = _requested_kind(accept)
    if kind in _ONLY_FOR and content != _ONLY_FOR[kind]:
        article = "a list" if content == "list" else "not a list"
        message = f"you requested {kind}, but the requested object is {article} ({go_type})"
        raise errors.StatusError(406, "NotAcceptable", message)


@lru_cache(maxsize=256)
def _requested_kind(accept: str) -> str:
    """The kind that the first served clause asks for."""
    for clause in accept.split(","):
        try:
            negotiate(clause.strip())
        except errors.StatusError:
            continue
        parameters = dict(_pair(parameter) for parameter in clause.split(";")[1:] if "=" in parameter)
        return parameters.get("as", "")
    return ""


@lru_cache(maxsize=256)
def accepts_plain(accept: str) -> bool:
    """Whether the first format that is served is JSON, with the whole object."""
    try:
        return negotiate(accept) == PLAIN
    except errors.StatusError:
        return False


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip(), value.strip()
