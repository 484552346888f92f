"""A small kind with every way a field can be owned."""

from __future__ import annotations

from torchyard.api.schema.types import Type

TEXT = Type("string")
ITEM = Type("object", fields={"name": TEXT, "side": Type("string", default="left", has_default=True), "value": TEXT})
KIND = Type(
    "object",
    fields={
        "apiVersion": TEXT,
        "kind": TEXT,
        "metadata": Type(
            "object",
            fields={
                "name": TEXT,
                "namespace": TEXT,
                "uid": TEXT,
                "labels": Type("map", values=TEXT),
                "annotations": Type("map", values=TEXT),
                "managedFields": Type("list", items=Type("any")),
            },
        ),
        "spec": Type(
            "object",
            fields={
                "text": TEXT,
                "count": Type("integer"),
                "flag": Type("boolean"),
                "either": Type("int-or-string"),
                "size": Type("string", format="quantity"),
                "texts": Type("map", values=TEXT),
                "nested": Type("map", values=Type("object", fields={"a": TEXT})),
                "whole": Type("map", values=TEXT, atomic_map=True),
                "row": Type("list", items=TEXT),
                "tags": Type("list", items=TEXT, list_type="set"),
                "items": Type("list", items=ITEM, list_type="map", list_keys=("name", "side")),
                "inner": Type("object", fields={"a": TEXT, "b": TEXT}),
                "free": Type("any"),
                "open": Type("object", fields={"known": TEXT}, preserve_unknown=True),
            },
        ),
        "status": Type("object", fields={"phase": TEXT}),
    },
)
SPEC = KIND.fields["spec"]


def step(name: str, side: str = "left") -> str:
    return f'k:{{"name":"{name}","side":"{side}"}}'
