"""The kinds of dynamic resource allocation (resource.k8s.io).

Modules in reading order:

- `strategy`: strategies, defaults and validation
- `columns`: table columns
"""
