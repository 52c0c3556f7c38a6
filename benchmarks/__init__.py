"""Benchmarks: throughput of the engine, of its floor and of other packages."""
