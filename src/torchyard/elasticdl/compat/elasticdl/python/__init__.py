"""See `torchyard.elasticdl`."""
