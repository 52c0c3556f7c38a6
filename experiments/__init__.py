"""One file a figure of the paper: a sweep, and a figure from its table."""
