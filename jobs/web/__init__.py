"""Pages for a browser: the report of a cluster and of a plan, with its charts and searchable tables."""
