"""One node of a kind's shape: the same for built-in kinds and for custom resources.

Merge patches, server-side apply, pruning, strict decoding, protobuf and OpenAPI all walk this tree, so none of them
needs to know where a kind comes from. A tree may be recursive (a JSON schema contains JSON schemas): `fields`,
`values` and `items` may be filled after the node is made by whoever builds the tree; to all others it is read-only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Shape = Literal["object", "map", "list", "string", "integer", "number", "boolean", "int-or-string", "any"]
ListType = Literal["atomic", "set", "map"]
Zero = Literal["omit", "keep", "always"]


@dataclass(slots=True, eq=False)
class Type:
    """What may stand at one place of an object.

    `object` has named `fields`; `map` has free keys whose values are `values`; `list` has `items`. Everything else
    is a scalar. `any` is free-form JSON (RawExtension, preserve-unknown-fields without properties).
    """

    shape: Shape
    name: str = ""  # definition name such as io.k8s.api.core.v1.PodSpec; empty for inline and custom types
    fields: dict[str, Type] = field(default_factory=dict)
    values: Type | None = None
    items: Type | None = None
    # scalar detail: quantity, date-time, micro-time, duration, byte, int32, int64, double, ...
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
    # Go's JSON encoding of this field when it is zero (false, 0, "", empty): left out, kept as sent, or written even if
    # it was not sent. `nullable` then says whether it is written as null. Custom resources keep what they were sent.
    zero: Zero = "keep"
    go: str = ""  # Go's name of a scalar's type as decoding errors spell it: v1.RestartPolicy
    # custom resources
    preserve_unknown: bool = False
    embedded_resource: bool = False
    description: str = ""

    @property
    def scalar(self) -> bool:
        return self.shape not in ("object", "map", "list", "any")
