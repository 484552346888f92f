"""The token that continues a list, as kube-apiserver encodes it: a snapshot, and where the next page starts."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

import orjson

from torchyard.api import errors

_VERSION = "meta.k8s.io/v1"
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9_-]")
_BEFORE_FIRST = "\0"  # follows the last key of a page: the smallest key after it starts the next one


@dataclass(frozen=True, slots=True)
class ListStart:
    revision: int  # -1: the present
    after: str  # the last key of the previous page, without the collection's prefix


def write_token(start: ListStart) -> str:
    text = orjson.dumps({"v": _VERSION, "rv": start.revision, "start": start.after + _BEFORE_FIRST})
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def read_token(token: str) -> ListStart:
    """Read a token that a list returned; 400 with kube-apiserver's message for anything else."""
    fields = _decode(token)
    version, revision, start = fields.get("v", ""), fields.get("rv", 0), fields.get("start", "")
    if version != _VERSION:
        raise _invalid(f"server does not recognize this encoded version {version}")
    if type(revision) is not int or revision == 0 or revision < -1:
        raise _invalid(f"incorrect encoded start resourceVersion (version {_VERSION})")
    if not isinstance(start, str) or not start:
        raise _invalid(f"encoded start key empty (version {_VERSION})")
    if not start.endswith(_BEFORE_FIRST):
        raise _invalid(start)
    return ListStart(revision, start.rstrip(_BEFORE_FIRST))


def _decode(token: str) -> dict[str, object]:
    outside = _NOT_BASE64.search(token)
    if outside or len(token) % 4 == 1:
        offset = outside.start() if outside else len(token) - 1
        raise _invalid(f"illegal base64 data at input byte {offset}")
    try:
        fields = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except ValueError:
        raise _invalid("use the token that a list returned") from None
    if not isinstance(fields, dict):
        raise _invalid("use the token that a list returned")
    return fields


def _invalid(detail: str) -> errors.StatusError:
    return errors.bad_request(f"invalid continue token: continue key is not valid: {detail}")
