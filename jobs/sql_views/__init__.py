"""The tables summed up for people: small views in SQL, read by DuckDB, by pages and by whoever has the tables."""
