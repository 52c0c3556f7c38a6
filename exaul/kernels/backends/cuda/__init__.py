"""Simulate copies on NVIDIA devices: many rounds a launch, each copy by a thread or by lanes of a warp."""
