"""Wire formats: request bodies in, objects, tables and watch events out; discovery and OpenAPI documents.

Read in this order:
- `body`: request bodies, decoded;
- `protobuf`: the protobuf bodies among them;
- `negotiate`: the format that a client accepts;
- `encode`: records encoded in that format, for responses, lists and watches;
- `in_process`: watch events for clients in this process;
- `discovery`, `openapi`: documents that describe the served resources.
"""
