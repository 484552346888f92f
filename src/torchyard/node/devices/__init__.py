"""GPUs: `nvidia` lists them and allocates them to containers."""
