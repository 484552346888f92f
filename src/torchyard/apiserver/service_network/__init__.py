"""How the API server reaches pods and Services: for proxies, webhooks and aggregated APIs.

Read in this order:
- `dialer`: opens a connection to an address of the cluster;
- `resolver`: from a Service's port to the address of one of its ready endpoints;
- `connector`: aiohttp's client on connections that a dialer opens.
"""
