"""Grafana boards as code; `python -m grafana.generate` writes their JSON."""
