"""Readers of other tools' files, one file per tool."""
