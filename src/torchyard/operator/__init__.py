"""Assembly of the controllers as an operator on a real Kubernetes."""
