"""x-kubernetes-validations: rules in CEL, checked when a definition is written and run when its objects are.

Nothing here is imported before the first definition with a rule is met.
"""
