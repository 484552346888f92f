"""The Python SDK: what programs import. Decides nothing."""
