"""Ways to store weights and to play rounds with them, one file each; ``backend.py`` says what a backend is."""
