"""What beat emits, and how often."""
