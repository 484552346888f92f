"""Dynamic resource allocation."""
