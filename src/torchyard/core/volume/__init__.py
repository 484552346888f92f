"""Which volume a claim is bound to, what happens to volumes, and which are protected from deletion. Pure.

- `view`: helpers to read claims, volumes and classes; the decision.
- `claims`, `volumes`: what to do about a claim, and about a volume.
- `match`: the volume that fits a claim best.
- `bind`: the writes that bind the two.
- `scheduling`: claims of a pod that is being scheduled.
- `local`: volumes that are directories on this machine.
- `ephemeral`, `protection`: claims owned by pods, and finalizers of volumes and claims in use.
"""
