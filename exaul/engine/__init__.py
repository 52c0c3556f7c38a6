"""The engine: sweeps of learners over environments, and what they show."""
