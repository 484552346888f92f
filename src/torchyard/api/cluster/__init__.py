"""Nodes, namespaces, events and the small kinds every cluster has."""
