"""Pods and pod templates.

Read `strategy.py` first (the hooks the API server calls), then `defaults.py` and `admission.py` (what the server adds),
`validation.py` with `containers.py`, `references.py`, `volumes.py`, `security.py`, `scheduling.py` (validation on
create), `updates.py` (validation on update), `warnings.py`; then `token.py`, `qos.py`, `totals.py` (values derived from
a pod) and `columns.py` (`kubectl get`).
"""
