"""A worker's part in a world: its connection to the coordinator, its process group, its state."""
