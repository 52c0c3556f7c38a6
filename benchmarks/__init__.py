"""Throughput against the floor and against peers."""
