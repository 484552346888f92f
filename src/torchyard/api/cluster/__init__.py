"""Nodes, namespaces and the small core kinds: ConfigMap, Secret, ServiceAccount, Lease, PriorityClass, RuntimeClass.

Read `strategy.py` first, then `defaults.py`, `validation.py` and `columns.py` (`kubectl get`).
"""
