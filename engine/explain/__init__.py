"""Why two recordings differ: both replayed in the simulator, group by group of what differs."""
