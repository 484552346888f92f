"""Queues: who gets quota, in which flavor, in which order, and who has to give it back. Decisions only, no I/O."""
