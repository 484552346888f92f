"""The built-in rules that every write passes, beyond what a kind itself checks. Mirrors kube-apiserver's plugins.

Each rule is one function of the same shape: it takes the `Attributes` of a write, changes the new object in place or
raises a `StatusError`, and reads nothing but the attributes' lookup. `chain` puts them in order.
"""
