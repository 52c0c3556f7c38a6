"""Simulate copies on NVIDIA devices: many rounds per launch, a copy per thread or warp, with records made inside."""
