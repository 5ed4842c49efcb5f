"""The agent's HTTP side: metrics, health and the live state, and what guards them."""
