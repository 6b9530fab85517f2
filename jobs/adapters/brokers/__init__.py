"""Requests to brokers: the Admin API, control requests, settings and log dirs."""
