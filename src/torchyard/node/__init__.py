"""The node agent: from a Pod object to processes, logs, exec and back."""
