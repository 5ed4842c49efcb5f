"""The HTTP side: an OpenAI-compatible API in front of one engine."""
