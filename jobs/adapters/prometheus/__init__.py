"""Prometheus: queries by its HTTP API, which Thanos, Mimir, Cortex and VictoriaMetrics also serve."""
