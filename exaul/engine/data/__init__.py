"""What comes in: logs, profiles, tables."""
