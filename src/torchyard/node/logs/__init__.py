"""Container logs: `reader` serves what the shims write."""
