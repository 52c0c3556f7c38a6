"""The uniforms of ``exaul.kernels.uniforms``, compiled.

Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
"""

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.game import ROUNDS
from exaul.kernels.native.arithmetic import real, word
from exaul.kernels.native.compile import compiled, outermost
from exaul.kernels.native.threads import pool
from exaul.kernels.uniforms import Draws, compile_for

threefry, uniform = compile_for(compiled, word, real)


@outermost
def _draw(key_x, key_y, block, out):
    for i in range(out.shape[0]):
        for u in range(out.shape[1]):
            out[i, u] = uniform((key_x[u], key_y[u]), np.uint32(block), np.uint32(i))


def draws(keys: Draws, blocks: NDArray[np.uint32]) -> Draws:
    """Draw the uniforms of some blocks, the same bits as ``exaul.kernels.uniforms.draws``.

    Args:
        keys: from ``exaul.kernels.uniforms.draw_keys``, [U] each.
        blocks: [K], numbers of the blocks of 256 rounds.

    Returns:
        [K, C, U] float64 in [0, 1) from each stream that has keys.
    """

    def of_stream(key: tuple[NDArray[np.uint32], NDArray[np.uint32]]) -> NDArray[np.float64]:
        out = np.empty((len(blocks), ROUNDS, len(key[0])))
        list(pool().map(lambda k: _draw(*key, blocks[k], out[k]), range(len(blocks))))
        return out

    return Draws(*(None if key is None else of_stream(key) for key in keys))
