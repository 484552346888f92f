"""What the server does at start and while it runs.

Read in this order:
- `bootstrap`: the objects every cluster has from the start;
- `compactor`: compaction of the store's history, and expiry of events.
"""
