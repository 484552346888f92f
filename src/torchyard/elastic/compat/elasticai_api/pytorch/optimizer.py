"""`DistributedOptimizer`."""

from torchyard.elastic.shim.controller import DistributedOptimizer

__all__ = ["DistributedOptimizer"]
