"""The payloads of every message, one module a domain."""
