"""Node, Namespace and the small core kinds: ConfigMap, Secret, ServiceAccount, Lease, PriorityClass, RuntimeClass.

Modules in reading order:

- `strategy`: strategies
- `defaults`: defaults
- `validation`: validation on create and update
- `columns`: table columns
"""
