"""Access control kinds: RBAC, admission policies and webhooks, certificate requests, flow control.

Read `strategy.py` and `validation.py` (roles and bindings), `aggregation.py` (aggregated ClusterRoles),
`webhooks.py` (admission webhooks, APIServices), `policies.py` (ValidatingAdmissionPolicy), `requests.py`
(CertificateSigningRequest, flow control), `columns.py` (`kubectl get`).
"""
