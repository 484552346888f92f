"""Access control kinds: RBAC, admission policies and webhooks, certificate requests, flow control.

Modules in reading order:

- `strategy`: strategies of roles and bindings
- `validation`: validation of roles and bindings
- `aggregation`: aggregated ClusterRoles
- `review_selectors`: selectors in access reviews
- `user_roles`: roles that add custom kinds to view, edit and admin
- `webhooks`: webhook configurations and APIServices
- `policies`: ValidatingAdmissionPolicy and its binding
- `certificate_requests`: CertificateSigningRequest
- `flow_control`: FlowSchema, PriorityLevelConfiguration
- `columns`: table columns
"""
