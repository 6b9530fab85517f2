"""Delta tables: read and written without a JVM by deltalake, and by Spark where they grow with the cluster."""
