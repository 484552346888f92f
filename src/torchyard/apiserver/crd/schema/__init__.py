"""A version's structural schema, compiled, and what is done with it: prune, default, validate."""
