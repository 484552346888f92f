"""`DistributedOptimizer`."""

from torchyard.elastic.elasticai.controller import DistributedOptimizer

__all__ = ["DistributedOptimizer"]
