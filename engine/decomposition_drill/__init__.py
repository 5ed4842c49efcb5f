"""Are explanations right? Pairs of simulated runs of which it is known what differs."""
