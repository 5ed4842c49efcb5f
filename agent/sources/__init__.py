"""Ways in which facts reach the agent."""
