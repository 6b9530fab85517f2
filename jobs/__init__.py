"""When and where: thin entry points, and one adapter for each outside thing."""
