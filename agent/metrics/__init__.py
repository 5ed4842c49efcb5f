"""The Prometheus metrics: one table, and the samples that fill it."""
