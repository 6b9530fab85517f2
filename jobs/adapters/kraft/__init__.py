"""The metadata of a KRaft cluster by requests to its brokers, as kafka-python encodes them."""
