"""Pods and pod templates.

Modules in reading order:

- `strategy`: the hooks that the API server calls
- `defaults`: defaults
- `admission`: service account, priority, runtime class, default tolerations
- `token`: the service account token volume
- `validation`: validation on create; calls the next five modules
- `containers`: containers, ports, probes, hooks
- `references`: fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef
- `volumes`: volumes and volume mounts
- `security`: security contexts
- `scheduling`: affinity, tolerations, topology spread, scheduling gates
- `updates`: validation on update, per endpoint
- `warnings`: texts of the Warning header
- `overlaps`: ports and paths that overlap, for the warnings
- `qos`: the QoS class
- `totals`: the total requests and limits of a pod
- `phases`: phase, end and readiness, as controllers read them
- `status_messages`: reasons and messages of a pod's status
- `kubelet_messages`: reasons and messages of a node about pods and containers
- `scheduler_messages`: reasons and messages of the scheduler and of evictions
- `columns`: table columns
"""
