"""What it costs that many jobs report their progress."""
