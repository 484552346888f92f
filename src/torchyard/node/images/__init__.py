"""Images without a container engine: well-known names mapped to this machine's programs, and images built here."""
