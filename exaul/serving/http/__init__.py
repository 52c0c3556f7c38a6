"""The HTTP service: limits against slow and malicious clients, and errors of one form."""
