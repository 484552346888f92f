"""ResourceQuota and LimitRange.

Modules in reading order:

- `strategy`: strategies
- `validation`: validation, and defaults of LimitRanges
- `scopes`: which objects a quota counts
- `usage`: the usage that an object adds to a quota
"""
