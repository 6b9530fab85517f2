"""What brokers ask of the controller: AlterPartition, AllocateProducerIds and ControlledShutdown."""
