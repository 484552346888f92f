"""Torchyard runs PyTorch training the Kubernetes way, on one machine or on a cluster."""

__version__ = "0.2.0"
