"""See `torchyard.elasticdl.master`."""
