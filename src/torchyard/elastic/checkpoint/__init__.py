"""Keeping state safe: a copy in shared memory that outlives its worker, and checkpoints on disk written from it."""
