"""Tell one address of yours, signed, when an incident opens and when it closes. Off by default."""
