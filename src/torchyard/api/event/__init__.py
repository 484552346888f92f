"""Events. Both API groups share one store, in which an event has its core/v1 form.

Modules in reading order:

- `strategy`: strategies of both API groups
- `validation`: defaults and validation
- `conversion`: conversion between core/v1 and events.k8s.io/v1
"""
