"""Rivals: learners of other papers that ``beyond`` compares, by ``experiments.rivals.module:name``."""
