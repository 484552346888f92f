"""Queues on the one-machine plane: workloads from jobs, admission, eviction, and the figures of queues."""
