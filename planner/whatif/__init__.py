"""The impact of losing brokers, racks or pairs of brokers."""
