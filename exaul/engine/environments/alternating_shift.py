"""``alternating-shift``: ten equal segments, alternating between two pools."""

from exaul.engine.environments.oblivious import segmented_pool

alternating_shift = segmented_pool(10)
