"""Compiled programs are stored between processes, so that only the first one waits for them."""

import jax

from exaul.kernels.cache import cache_folder

SHORTEST = 0.1  # seconds of a compilation that is worth a file


def use_compilation_cache() -> None:
    """Let JAX store its programs in the user's cache folder, unless it was told where to, or there is none."""
    folder = cache_folder()
    if jax.config.values["jax_compilation_cache_dir"] is None and folder is not None:
        jax.config.update("jax_compilation_cache_dir", str(folder / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", SHORTEST)
