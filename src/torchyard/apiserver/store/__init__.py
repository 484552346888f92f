"""Where objects live: bytes on disk (`log`), bytes in memory (`cache`), and what changes both (`store`)."""
