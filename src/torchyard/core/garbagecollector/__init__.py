"""Garbage collection, decided: who owns whom, and what follows when an owner goes."""
