"""A request and its response, independent of the transport.

Read in this order:
- `request`: method, path, query, headers, body and user;
- `response`: status, body or stream, warnings;
- `warnings`: the Warning headers of a response, within limits;
- `route`: the URL grammar, from a path to a verb and a resource;
- `computation`: the threads in which large requests are computed;
- `context`: what a request asks of a resource, with its options. Every verb gets one.
"""
