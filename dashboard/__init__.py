"""The Streamlit dashboard: what an engine's paged KV cache does, for the person on call."""
