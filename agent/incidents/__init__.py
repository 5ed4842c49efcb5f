"""Incidents in the agent: watch the engines, keep what lasts, let people acknowledge it."""
