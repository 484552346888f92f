"""Reading container logs."""
