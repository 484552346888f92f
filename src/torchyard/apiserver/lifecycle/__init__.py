"""What the server does at start and while it runs.

Read in this order:
- `bootstrap`: the objects every cluster has from the start;
- `service_addresses`: the IPAddresses of Services;
- `owned_objects`: the objects that belong to this program;
- `compactor`: compaction of the store's history, and expiry of events.
"""
