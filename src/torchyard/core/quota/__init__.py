"""ResourceQuotas: the usage in their status. Pure.

- `status`: which resources a quota counts, and how much is used.
"""
