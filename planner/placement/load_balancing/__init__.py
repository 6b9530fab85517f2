"""Balancing of measured load: disk, bytes in and out, and CPU, of brokers and in windows of the week."""
