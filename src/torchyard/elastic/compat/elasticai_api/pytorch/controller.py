"""`PyTorchAllReduceController` and `create_elastic_controller`."""

from torchyard.elastic.elasticai.controller import PyTorchAllReduceController, create_elastic_controller

__all__ = ["PyTorchAllReduceController", "create_elastic_controller"]
