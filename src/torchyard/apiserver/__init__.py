"""The embedded Kubernetes API server: store, verbs, wire formats, access."""
