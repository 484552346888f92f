"""How fast queues admit: Kueue's own generator shapes, driven through the API."""
