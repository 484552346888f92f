"""A plane under random work of every kind for a long time, while its processes are killed.

- `work`: what clients do, object by object; everything that is created is deleted a while later.
- `kills`: the plane, the zygote and shims are killed.
- `samples`: memory, file size, log lines and processes over time, and whether they stay flat.
- `picture`: the samples as an SVG.
- `__main__`: runs it.
"""
