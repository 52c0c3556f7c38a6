"""Short programs that use exaul, to read and to change. Run one with ``uv run python -m examples.NAME``."""
