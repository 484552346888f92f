"""Admission as the verbs call it.

Read in this order:
- `controller`: built-in plugins, then webhooks and policies, then quota;
- `dynamic`: webhooks and policies that users configure, wired to the store.
"""
