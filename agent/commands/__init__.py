"""Commands of the agent; each module has a `main(argv) -> int`."""
