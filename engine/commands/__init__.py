"""What the `kvpulse` command runs of the engine."""
