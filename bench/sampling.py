"""Samples of offsets and sizes against an unchanged snapshot of the same simulated brokers.

    python -m bench.sampling 1000000 [ROUNDS]

The brokers encode their answers once, and hold no data: the ratio is what Surveyor needs.
"""
