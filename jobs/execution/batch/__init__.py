"""Batch mode: Surveyor takes the controllership, writes in fenced multis, and notifies the brokers."""
