"""GPUs: which there are, and which container has which."""
