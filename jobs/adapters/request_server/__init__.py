"""The server side of Kafka's protocol: sockets, TLS, SASL and framing, without ZooKeeper and without rules."""
