"""Targets: how fast users are to be served, and how much of what was served was fast enough."""
