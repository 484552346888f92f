"""Authentication, authorization and admission of requests. Does not depend on HTTP or the store.

Read in this order:

- `authentication`, `client_certificates`: client certificates and bearer tokens become a `User`.
- `service_account_tokens`, `signing_key`: issues and verifies service account tokens (TokenRequest, JWKS).
- `impersonation`: the `Impersonate-*` headers.
- `access_control`: the three above together with the authorizer; the server calls this.
- `lister`: the read-only view of the store that all decisions use.
- `rbac`: the RBAC authorizer.
- `escalation`: who may write roles and bindings.
- `reviews`: SubjectAccessReview and its relatives.
- `bootstrap_policy`: the default roles and bindings, from `policy.txt`.
- `certificate_dir`, `certificates`, `certificate_check`, `tls`: the certificate authority, its certificates, when they
  are renewed, and the server's TLS context.
- `request_signing`: signs certificate requests of others.
- `admission/`: the built-in admission plugins.
- `webhooks/`: admission webhooks and ValidatingAdmissionPolicies.
"""
