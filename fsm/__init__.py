"""The pure heart: contracts, guards and transitions. No I/O, no clock, no server."""
