"""Events. Both API groups share one store, in which an event has its core/v1 form.

Read `strategy.py`, `validation.py`, then `conversion.py` (core/v1 and events.k8s.io/v1).
"""
