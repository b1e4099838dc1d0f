"""Effects: the only code that reaches out to other systems on a machine's behalf."""
