"""The demonstration: child processes, a mixed workload over HTTP, and a summary."""
