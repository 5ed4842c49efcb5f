"""The ledger: what the agent knows of each run, event by event, and the laws that it keeps."""
