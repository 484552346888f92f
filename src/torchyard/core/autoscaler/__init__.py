"""How many replicas a HorizontalPodAutoscaler wants, from what its pods use. Nothing is read or written here."""
