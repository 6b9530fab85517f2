"""Which control requests brokers are sent: notices, made from changes and registered brokers."""
