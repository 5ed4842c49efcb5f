"""Saved baselines and comparisons: pure statistics over rollup series, no clock, no store."""
