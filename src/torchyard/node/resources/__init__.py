"""What the machine has, what containers use of it, and how their limits are kept."""
