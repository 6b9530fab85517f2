"""Delta tables: read and written without a JVM by deltalake, and by Spark if they grow with the cluster."""
