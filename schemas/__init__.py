"""Table schemas, and codecs between znodes and rows."""
