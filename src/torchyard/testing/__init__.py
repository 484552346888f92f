"""A plane for tests of operators and Kubernetes clients, and a pytest plugin that starts one.

    def test_my_operator(yard, yard_namespace):
        yard.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": yard_namespace}})
        run_my_operator(kubeconfig=yard.kubeconfig)

Modules in reading order:

- `plugin`: the fixtures `yard`, `yard_namespace` and `yard_kubeconfig`
- `plane`: a plane in a thread of the test's process
- `clock`: time that a test can advance
- `reset`: the store as it was
- `kind`: the commands of kind, for suites that call that program; `kind_config`: its configuration files
"""

from torchyard.testing.plane import LocalPlane

__all__ = ["LocalPlane"]
