"""One pod on this node: its directory, environment, volumes, probes, and the worker that drives it."""
