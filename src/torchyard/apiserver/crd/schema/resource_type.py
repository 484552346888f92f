"""A compiled schema as the `Type` tree that patch, server-side apply and OpenAPI use for every kind."""

from __future__ import annotations

from torchyard.api.schema.builtin import definition
from torchyard.api.schema.types import Shape, Type
from torchyard.apiserver.crd.schema.node import SchemaNode

OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_SCALARS: dict[str, Shape] = {"string": "string", "integer": "integer", "number": "number", "boolean": "boolean"}


def resource_type(root: SchemaNode) -> Type:
    """The type of a whole custom resource."""
    return _TypeBuilder().resource(root)


class _TypeBuilder:
    """Builds one type per node, however often the node is used."""

    def __init__(self) -> None:
        self._types: dict[int, Type] = {}

    def resource(self, node: SchemaNode) -> Type:
        """An object with apiVersion, kind and metadata, whose types a schema cannot change."""
        fields = {"apiVersion": Type("string"), "kind": Type("string"), "metadata": definition(OBJECT_META)}
        for name, sub in node.properties.items():
            if name not in fields:
                fields[name] = self.type(sub)
        return Type(
            "object",
            fields=fields,
            required=node.checks.required if node.checks else (),
            preserve_unknown=node.preserve,
            embedded_resource=node.embedded,
            atomic_map=node.map_type == "atomic",
        )

    def type(self, node: SchemaNode) -> Type:
        built = self._types.get(id(node))
        if built is None:
            built = self._types[id(node)] = self._build(node)
            built.nullable = node.nullable
            built.default, built.has_default = node.default, node.has_default
            built.enum = tuple(node.checks.enum) if node.checks else ()
            built.format = node.checks.format if node.checks else ""
        return built

    def _build(self, node: SchemaNode) -> Type:
        if node.embedded:
            return self.resource(node)
        if node.int_or_string:
            return Type("int-or-string")
        if node.type == "array":
            items = self.type(node.items) if node.items else Type("any")
            return Type("list", items=items, list_type=node.list_type, list_keys=node.list_keys)
        if node.type in _SCALARS:
            return Type(_SCALARS[node.type])
        atomic = node.map_type == "atomic"
        if node.properties:
            return Type(
                "object",
                fields={name: self.type(sub) for name, sub in node.properties.items()},
                required=node.checks.required if node.checks else (),
                preserve_unknown=node.preserve,
                atomic_map=atomic,
            )
        if node.additional is not None:
            return Type("map", values=self.type(node.additional), atomic_map=atomic)
        return Type("any", preserve_unknown=node.preserve, atomic_map=atomic)
