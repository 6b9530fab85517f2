"""Admin mode: Kafka's controller is asked, by the Admin API or by znodes in /admin."""
