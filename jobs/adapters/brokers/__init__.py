"""Brokers: the Admin API, control requests, settings and log dirs, asked of each broker."""
