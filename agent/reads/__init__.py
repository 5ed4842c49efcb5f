"""The reading side of the store: every question that a page, a command or an API may ask."""
