"""The controller's rules, without I/O: transforms of DataFrames and arrays for plans, and `rules` in plain Python.

The resident controller decides by `rules`, on typed values.
"""
