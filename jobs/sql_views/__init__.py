"""SQL views that summarise the tables, run by DuckDB for the pages and for users."""
