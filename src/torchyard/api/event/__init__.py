"""Events. Both of their groups share one store: an event is kept as core/v1 has it."""
