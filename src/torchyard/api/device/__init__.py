"""Dynamic resource allocation (resource.k8s.io). Read `strategy.py`, then `columns.py` (`kubectl get`)."""
