"""Read the Go structs of the Kubernetes API out of a kube-apiserver binary.

OpenAPI says which fields exist, not which of them Go leaves out when they are zero. Go keeps its struct tags and
field types in every binary for reflection, so the server itself is the source: this walks the binary's type links and
gives, per struct of a Kubernetes API package, each JSON field's Go type and whether the zero value is omitted.

It knows the layout of Go 1.24's type metadata on 64-bit little-endian ELF (internal/abi/type.go) and nothing else.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

PACKAGES = ("k8s.io/api/", "k8s.io/apimachinery/pkg/", "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1")
PACKAGES += ("k8s.io/kube-aggregator/pkg/apis/apiregistration/v1", "k8s.io/metrics/pkg/apis/metrics/v1beta1")

KINDS = {1: "bool", 2: "int", 3: "int8", 4: "int16", 5: "int32", 6: "int64", 7: "uint", 8: "uint8", 9: "uint16"}
KINDS |= {10: "uint32", 11: "uint64", 13: "float32", 14: "float64", 20: "interface", 24: "string"}
POINTER, SLICE, STRUCT, MAP, ARRAY = 22, 23, 25, 21, 17
HAS_NAME, EXTRA_STAR = 4, 2


class Binary:
    """The loaded sections of an ELF file, addressed as the program would address them."""

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        offset, count, names_at = (
            struct.unpack_from("<Q", self.data, 0x28)[0],
            *struct.unpack_from("<HH", self.data, 0x3C),
        )
        headers = [struct.unpack_from("<IIQQQQ", self.data, offset + 64 * i) for i in range(count)]
        names = headers[names_at][4]
        self.sections: dict[str, tuple[int, int, int]] = {}
        for name, _, _, address, at, size in headers:
            end = self.data.index(b"\0", names + name)
            self.sections[self.data[names + name : end].decode()] = (address, at, size)

    def at(self, address: int) -> int:
        """The file offset of an address."""
        for start, offset, size in self.sections.values():
            if start and start <= address < start + size:
                return offset + address - start
        raise ValueError(f"address {address:#x} is in no section")

    def unpack(self, layout: str, address: int) -> tuple[Any, ...]:
        return struct.unpack_from(layout, self.data, self.at(address))


class GoTypes:
    """Go's runtime type records."""

    def __init__(self, binary: Binary) -> None:
        self.binary = binary
        module = binary.sections[".go.module"][0]
        # runtime.moduledata: `types` follows the text and data bounds; it is where name and type offsets start from
        self.base = binary.unpack("<Q", module + 296)[0]

    def links(self) -> list[int]:
        _, offset, size = self.binary.sections[".typelink"]
        return [self.base + each for each in struct.unpack_from(f"<{size // 4}i", self.binary.data, offset)]

    def record(self, address: int) -> tuple[int, int, str]:
        """kind, flags, name"""
        flags, _, _, kind = self.binary.unpack("<BBBB", address + 20)
        name_offset, _ = self.binary.unpack("<ii", address + 40)
        name = self.name(self.base + name_offset)[0]
        return kind & 31, flags, name[1:] if flags & EXTRA_STAR else name

    def name(self, address: int) -> tuple[str, str, int]:
        """name, tag, flags"""
        data, at = self.binary.data, self.binary.at(address)
        flags = data[at]
        name, at = self._text(data, at + 1)
        tag = self._text(data, at)[0] if flags & 2 else ""
        return name, tag, flags

    @staticmethod
    def _text(data: bytes, at: int) -> tuple[str, int]:
        size = shift = 0
        while True:
            byte = data[at]
            at += 1
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        return data[at : at + size].decode(), at + size

    def element(self, address: int) -> int:
        return int(self.binary.unpack("<Q", address + 48)[0])

    def package(self, address: int, kind: int) -> str:
        """Import path of a named type: its uncommon part follows the part that belongs to its kind."""
        offset = self.binary.unpack("<i", address + (80 if kind == STRUCT else 48))[0]
        return self.name(self.base + offset)[0] if offset else ""

    def fields(self, address: int) -> list[tuple[str, str, int, bool]]:
        """name, tag, type, embedded"""
        array, count = self.binary.unpack("<QQ", address + 56)
        collected = []
        for i in range(count):
            name_at, kind, _ = self.binary.unpack("<QQQ", array + 24 * i)
            name, tag, flags = self.name(name_at)
            collected.append((name, tag, kind, bool(flags & 8)))
        return collected

    def spell(self, address: int) -> Any:
        """A type as data: "string", ["*", T], ["[]", T], ["map", T], or the full name of a struct."""
        kind, _, name = self.record(address)
        if kind == POINTER:
            return ["*", self.spell(self.element(address))]
        if kind in (SLICE, ARRAY):
            item = self.spell(self.element(address))
            return "bytes" if item == "uint8" else ["[]", item]
        if kind == MAP:
            return ["map", self.spell(self.binary.unpack("<Q", address + 56)[0])]
        if kind == STRUCT:
            return f"{self.package(address, kind)}.{name.rpartition('.')[2]}"
        return KINDS.get(kind, name)


def fields_of(types: GoTypes, address: int) -> dict[str, Any]:
    """JSON name -> {type, name, omit}; the fields of structs embedded without a name are taken in."""
    collected: dict[str, Any] = {}
    for go_name, tag, kind_address, embedded in types.fields(address):
        quoted = tag.partition('json:"')[2].partition('"')[0]
        json_name, *options = quoted.split(",")
        if json_name == "-" or not go_name[0].isupper():
            continue
        if embedded and not json_name:
            target = types.element(kind_address) if types.record(kind_address)[0] == POINTER else kind_address
            if types.record(target)[0] == STRUCT:
                collected = fields_of(types, target) | collected
            continue
        omit = [each for each in options if each in ("omitempty", "omitzero")]
        collected[json_name or go_name] = {
            "type": types.spell(kind_address),
            "go": named(types, kind_address),
            "omit": omit,
        }
    return collected


def named(types: GoTypes, address: int) -> str:
    """How Go's messages spell the type: v1.RestartPolicy, []string, *int32."""
    return types.record(address)[2]


def structs_of(binary: Path) -> dict[str, Any]:
    """Full name of each API struct -> its JSON fields."""
    types = GoTypes(Binary(binary))
    structs: dict[str, Any] = {}
    for link in types.links():
        if types.record(link)[0] != POINTER:
            continue
        address = types.element(link)
        kind, flags, name = types.record(address)
        if kind != STRUCT or not flags & HAS_NAME:
            continue
        package = types.package(address, kind)
        if package.startswith(PACKAGES):
            structs[f"{package}.{name.rpartition('.')[2]}"] = fields_of(types, address)
    return structs
