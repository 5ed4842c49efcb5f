"""Faults that can be put into an engine on purpose, to see them found."""
