"""Service accounts and the secrets that hold their tokens. Pure."""
