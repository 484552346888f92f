"""GPUs: `nvidia` lists them and allocates them to containers, `utilization` reads how busy they are."""
