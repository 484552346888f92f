"""Averaging gradients: by logical micro-batch (`strict`, the same bits in every world) or by rank (`fast`)."""
