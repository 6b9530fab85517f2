"""The server side of Kafka's protocol: sockets, TLS, SASL and framing; it knows no ZooKeeper and no rule."""
