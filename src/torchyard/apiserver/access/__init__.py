"""Who may ask and for what: certificates, users, RBAC and built-in admission. Knows nothing of HTTP or the store."""
