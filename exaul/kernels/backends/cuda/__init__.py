"""Simulate copies on NVIDIA devices: many rounds a launch, a copy per thread or warp, with records made inside."""
