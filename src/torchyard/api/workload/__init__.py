"""Deployments and their kin: what keeps pods running."""
