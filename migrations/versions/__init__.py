"""Revisions of the store, in order."""
