"""The backend of NVIDIA devices: a chunk a launch, a copy a thread or a warp, records and uniforms made inside."""
