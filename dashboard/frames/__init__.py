"""Pure functions from the store's answers to what one panel shows."""
