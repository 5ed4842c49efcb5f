"""Engines that are only known by their metrics page: what it says, as rows of the rollups."""
