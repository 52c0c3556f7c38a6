"""The learner in a user's program: one at a time, or one for each key in one file with a journal."""
