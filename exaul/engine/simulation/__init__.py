"""Prepare a sweep and simulate it."""
