"""Drills: engines with faults put in on purpose, to see whether triage finds them."""
