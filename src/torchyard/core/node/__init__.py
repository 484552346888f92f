"""Nodes: what their conditions mean for the pods that look for one."""
