"""What metrics and traces cost: `python -m bench.monitoring`."""
