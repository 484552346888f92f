"""Node, Namespace and the small core kinds: ConfigMap, Secret, ServiceAccount, Lease, PriorityClass, RuntimeClass.

Modules in reading order:

- `strategy`: strategies
- `defaults`: defaults
- `validation`: validation on create and update
- `messages`: reasons and messages about nodes, namespaces and owner references
- `node_messages`: reasons and messages of a node about itself
- `columns`: table columns
"""
