"""One module per page: each asks for frames, draws, and says what to do when there is nothing."""
