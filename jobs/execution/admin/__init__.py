"""Admin mode: changes are requested from Kafka's controller, over the Admin API or by znodes in /admin."""
