"""The elastic training runtime. Standard library and torch only; imports nothing of the rest."""
