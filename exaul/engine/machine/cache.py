"""Keep compiled programs on disk, so that later processes need not compile them again."""

import jax

from exaul.kernels.cache import cache_folder

SHORTEST = 0.1  # seconds; programs that compile faster are not stored


def use_compilation_cache() -> None:
    """Let JAX store programs in the user's cache folder, unless a folder is configured or none can be made."""
    folder = cache_folder()
    if jax.config.values["jax_compilation_cache_dir"] is None and folder is not None:
        jax.config.update("jax_compilation_cache_dir", str(folder / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", SHORTEST)
