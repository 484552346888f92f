"""Manifests the client scenarios write, as people write them: YAML."""

from __future__ import annotations

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: p1
  labels: {app: web}
spec:
  containers:
    - name: main
      image: busybox:1.36
      command: [sleep, "1000"]
"""

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 2
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
        - name: main
          image: busybox:1.36
"""

CONFIG_MAP = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
data:
  color: red
  size: "3"
"""

JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: train
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: main
          image: busybox:1.36
"""

CLAIM = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: data
spec:
  accessModes: [ReadWriteOnce]
  resources:
    requests:
      storage: 1Gi
"""


def definition(plural: str) -> str:
    """A CustomResourceDefinition with status, scale and columns."""
    kind = plural.removesuffix("s").capitalize()
    return f"""\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: {plural}.clients.torchyard.dev
spec:
  group: clients.torchyard.dev
  scope: Namespaced
  names: {{plural: {plural}, singular: {kind.lower()}, kind: {kind}, categories: [{plural}-family]}}
  versions:
    - name: v1
      served: true
      storage: true
      subresources:
        status: {{}}
        scale: {{specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
      additionalPrinterColumns:
        - {{name: Replicas, type: integer, jsonPath: .spec.replicas}}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties:
                replicas: {{type: integer, default: 1, description: "how many"}}
                color: {{type: string, enum: [red, blue]}}
            status:
              type: object
              x-kubernetes-preserve-unknown-fields: true
"""


def custom(plural: str, name: str = "c1", color: str = "red") -> str:
    kind = plural.removesuffix("s").capitalize()
    return f"""\
apiVersion: clients.torchyard.dev/v1
kind: {kind}
metadata:
  name: {name}
spec:
  color: {color}
"""
