"""Rollups: what happened in each second, ten seconds, minute and hour, as rows to store."""
