"""A sweep is prepared, then played."""
