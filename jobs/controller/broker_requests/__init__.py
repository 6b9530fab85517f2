"""Control requests of the resident controller to brokers: batches, responses and retries."""
