"""The controllers as an operator on a real Kubernetes: settings, checks, election, webhook, metrics, installation."""
