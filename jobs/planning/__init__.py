"""Planning: one module per kind of plan, from the request to the stored plan. Nothing here changes a cluster."""
