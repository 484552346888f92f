"""The forms in which clients are spoken to: content types, protobuf bodies, tables, discovery, OpenAPI."""
