"""CertificateSigningRequests. Pure.

- `request`: what a request asks for.
- `signing`: which requests the signers of the API server accept, and for how long certificates are valid.
- `approval`: which requests of kubelets are approved without a person.
- `cleaning`: when old requests are deleted.
"""
