"""Decisions: pure functions from (objects, clock, settings) to writes, status, events and a time to wake.

No I/O, no sleep, no `now()`.
"""
