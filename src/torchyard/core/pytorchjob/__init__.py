"""What to do about a PyTorchJob: (objects, clock, settings) → writes, status, events, wake-at. Pure."""
