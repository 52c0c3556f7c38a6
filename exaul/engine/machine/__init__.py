"""Devices, clusters, memory and progress."""
