"""The cluster surveyed into tables: snapshots, their differences, sizes, and what is kept."""
