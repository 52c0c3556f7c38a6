"""Devices, hosts, memory and progress."""
