"""`PyTorchAllReduceController` and `create_elastic_controller`."""

from torchyard.elastic.shim.controller import PyTorchAllReduceController, create_elastic_controller

__all__ = ["PyTorchAllReduceController", "create_elastic_controller"]
