"""The volumes of pods.

Reading order: `mounter` (every kind of volume), `atomic_writer` (config maps and secrets as files), `nfs`.
"""
