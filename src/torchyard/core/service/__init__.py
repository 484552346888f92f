"""Where the traffic of services goes."""
