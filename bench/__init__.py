"""Benchmarks: one folder per claim, one command each, the peer measured in the same run."""
