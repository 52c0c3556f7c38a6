"""Logs of scored answers: files, records, traces, built-in profiles, and what may be wrong with a log."""
