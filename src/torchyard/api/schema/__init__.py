"""The schemas of all kinds: of built-in kinds from generated tables, of custom kinds from their CRD.

Modules in reading order:

- `types`: a node of a schema
- `builtin`: the types of the built-in kinds
- `document`: reading a client's document; starts here on every write
- `decode`: decoding JSON as a Go server does
- `scalars`: canonical forms of times and base64
- `strict`: unknown and duplicate fields
- `protobuf`: protobuf messages of the built-in kinds
- `structural`: building blocks of our own CRDs
- `descriptions`: texts for `kubectl explain`
"""
