"""The edges: the command line, the development servers and everything that reads."""
