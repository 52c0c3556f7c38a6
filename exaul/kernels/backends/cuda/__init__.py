"""Simulate copies on NVIDIA devices: a chunk per launch, a copy per thread or warp, with records made inside."""
