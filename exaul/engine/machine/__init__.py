"""The machine: devices, clusters, memory, the compilation cache and progress reports."""
