"""Input: logs, built-in profiles and tables."""
