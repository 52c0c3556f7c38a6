"""Input and output at their limits: names, paths, numbers, manifests; terminals, pipes and full disks."""
