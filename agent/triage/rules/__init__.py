"""One small pure rule per verdict: does it hold, how strongly, on what evidence."""
