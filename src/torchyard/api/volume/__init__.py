"""PersistentVolumes, claims, storage classes and the CSI kinds.

Modules in reading order:

- `strategy`: strategies
- `defaults`: defaults
- `admission`: protection finalizers, the default storage class, expansion
- `validation`: validation of volumes and claims
- `claims`: validation of a claim's spec
- `sources`: validation of volume sources
- `classes`: validation of StorageClass, VolumeAttributesClass and the CSI kinds
- `messages`: annotations, reasons and messages of the volume controllers
- `mount_messages`: why a node cannot mount a volume
- `columns`: table columns
"""
