"""The engine runs sweeps of learners over environments, and computes their tables and figures."""
