"""What Rollcall speaks of: errors, messages, tables. The lowest layer; it decides nothing."""
