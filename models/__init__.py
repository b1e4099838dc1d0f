"""What Rollcall speaks of: errors, messages, tables. The lowest layer; it knows no server and decides nothing."""
