"""The writing side of the store: schema, commits, leases, retention and checks."""
