"""The roll call of a simulated fleet on a stack of its own, counted from outside."""
