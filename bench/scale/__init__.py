"""What a plane with all its controllers and its node costs as objects accumulate.

- `kinds`: the objects, each in a state in which it waits or is over.
- `__main__`: creates them, and measures at each size.
"""
