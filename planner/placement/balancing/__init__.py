"""Evening out what brokers hold: replicas, leaders, topics and bytes."""
