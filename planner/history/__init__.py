"""One snapshot against another: what changed, and what people are told of it."""
