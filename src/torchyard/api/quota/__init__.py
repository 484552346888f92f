"""Quotas: what an object costs its namespace, and which quotas count it."""
