"""What a row is: a StructType for each table, and the codecs between znodes and rows."""
