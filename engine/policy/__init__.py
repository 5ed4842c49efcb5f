"""Who goes first, who gives way, and who may take how much: the policies of the scheduler."""
