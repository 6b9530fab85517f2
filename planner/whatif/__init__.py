"""What a loss would cost: brokers, racks or pairs of brokers."""
