"""The operator on a real API server under load, beside a client that only creates the same objects."""
