"""Garbage collection: the graph of owner references, and what to do when an owner is deleted. Pure.

- `graph`: the objects and their owner references.
- `decide`: what to do about one object.
"""
