"""From a request to its response, without a socket.

Read in this order:
- `router`: authorizes a request, finds its handler, turns errors into Statuses;
- `stored_get`: gets whose responses are the stored bytes;
- `aggregation`: groups that extension API servers serve;
- `mounted_app`: an application below a path of its own.
"""
