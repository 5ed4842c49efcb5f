"""Triage: what is wrong with an engine, why, and what to do, from recorded facts alone."""
