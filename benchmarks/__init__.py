"""Benchmarks: speed of the engine beside other packages."""
