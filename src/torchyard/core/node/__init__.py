"""Nodes: taints that follow their conditions, and the pods that must leave them. Pure.

- `health`: unreachable nodes and the NoExecute taints they get.
- `taints`: NoSchedule taints that follow conditions.
- `eviction`: when a pod is evicted, and which pods are garbage.
"""
