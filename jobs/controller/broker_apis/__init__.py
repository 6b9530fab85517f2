"""Requests of brokers to the controller: AlterPartition, AllocateProducerIds and ControlledShutdown."""
