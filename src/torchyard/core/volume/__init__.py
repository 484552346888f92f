"""Which volume a claim gets, what becomes of volumes, and who keeps either from going. Pure."""
