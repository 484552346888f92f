"""Rules about who may do what: RBAC, admission, certificates, flow control."""
