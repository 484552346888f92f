"""CustomResourceDefinitions themselves: what one may say, and the status the server gives it."""
