"""Learners in a user's program: one in memory, or one per key in a file with a journal."""
