"""The one exception that a user's input can raise."""


class BadInput(ValueError):
    """Input that cannot be used: one sentence that names the file and row, or the field, and what is allowed."""
