"""A node of a kind's schema, for built-in kinds and custom resources alike.

Merge patches, server-side apply, pruning, strict decoding, protobuf and OpenAPI all walk this tree, so none of them
needs to know where a kind comes from. A tree may be recursive (a JSON schema contains JSON schemas). Only the code that
builds a tree may set `fields`, `values` and `items` after a node is created; for everything else a tree is read-only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Shape = Literal["object", "map", "list", "string", "integer", "number", "boolean", "int-or-string", "any"]
ListType = Literal["atomic", "set", "map"]
Zero = Literal["omit", "keep", "always"]


@dataclass(slots=True, eq=False)
class Type:
    """The type of a value in an object.

    `object` has named `fields`; `map` has arbitrary keys and `values`; `list` has `items`. All others are scalars.
    `any` is free-form JSON (RawExtension, preserve-unknown-fields without properties).
    """

    shape: Shape
    name: str = ""  # definition name such as io.k8s.api.core.v1.PodSpec; empty for inline and custom types
    fields: dict[str, Type] = field(default_factory=dict)
    values: Type | None = None
    items: Type | None = None
    # format of a scalar: quantity, date-time, micro-time, duration, byte, int32, int64, double, ...
    format: str = ""
    nullable: bool = False
    required: tuple[str, ...] = ()
    default: Any = None
    has_default: bool = False
    enum: tuple[Any, ...] = ()
    # server-side apply
    list_type: ListType = "atomic"
    list_keys: tuple[str, ...] = ()
    atomic_map: bool = False  # an object or map that is replaced and owned as a whole
    # strategic merge patch
    patch_strategy: tuple[str, ...] = ()  # "merge", "replace", "retainKeys"
    patch_merge_key: str = ""
    # Go's JSON encoding of a zero value (false, 0, "", empty): omitted, kept as sent, or written even if it was not
    # sent. `nullable` determines whether it is written as null. Custom resources keep what was sent.
    zero: Zero = "keep"
    go: str = ""  # Go's name of a scalar's type in decoding errors: v1.RestartPolicy
    # custom resources
    preserve_unknown: bool = False
    embedded_resource: bool = False
    description: str = ""

    @property
    def scalar(self) -> bool:
        return self.shape not in ("object", "map", "list", "any")
