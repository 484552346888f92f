"""`router`: from a request to its handler, with authorization, metrics and errors as Status responses."""
