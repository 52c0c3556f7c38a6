"""The uniforms of ``exaul.kernels.uniforms``, compiled.

Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
"""

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.native.compile import compiled, outermost
from exaul.kernels.backends.native.threads import pool
from exaul.kernels.game import ROUNDS


@compiled
def _mix(x, y, r):
    """One round of Threefry, with a rotation by r."""
    x = np.uint32(x + y)
    y = np.uint32(np.uint32(y << np.uint32(r)) | (y >> np.uint32(32 - r)))
    return x, np.uint32(y ^ x)


@outermost
def _draw(key_x, key_y, block, out):
    """Fill ``out`` [C, U] with the uniforms of one block, under the keys [U]."""
    for i in range(out.shape[0]):
        for u in range(out.shape[1]):
            a, b = key_x[u], key_y[u]
            c = np.uint32(a ^ b ^ np.uint32(0x1BD11BDA))
            x, y = np.uint32(np.uint32(block) + a), np.uint32(np.uint32(i) + b)
            x, y = _mix(*_mix(*_mix(*_mix(x, y, 13), 15), 26), 6)
            x, y = np.uint32(x + b), np.uint32(y + c + np.uint32(1))
            x, y = _mix(*_mix(*_mix(*_mix(x, y, 17), 29), 16), 24)
            x, y = np.uint32(x + c), np.uint32(y + a + np.uint32(2))
            x, y = _mix(*_mix(*_mix(*_mix(x, y, 13), 15), 26), 6)
            x, y = np.uint32(x + a), np.uint32(y + b + np.uint32(3))
            x, y = _mix(*_mix(*_mix(*_mix(x, y, 17), 29), 16), 24)
            x, y = np.uint32(x + b), np.uint32(y + c + np.uint32(4))
            x, y = _mix(*_mix(*_mix(*_mix(x, y, 13), 15), 26), 6)
            x, y = np.uint32(x + c), np.uint32(y + a + np.uint32(5))
            out[i, u] = (np.float64(x >> np.uint32(5)) * 67108864.0 + np.float64(y >> np.uint32(6))) * 2.0**-53


def uniforms(
    keys: tuple[NDArray[np.uint32], NDArray[np.uint32]], blocks: NDArray[np.uint32]
) -> NDArray[np.float64]:
    """Draw the uniforms of some blocks, the same bits as ``exaul.kernels.uniforms.uniforms``.

    Args:
        keys: two uint32 arrays [U], from ``trial_keys``.
        blocks: [K], numbers of the blocks of 256 rounds.

    Returns:
        [K, C, U] float64 in [0, 1).
    """
    out = np.empty((len(blocks), ROUNDS, len(keys[0])))
    list(pool().map(lambda k: _draw(keys[0], keys[1], blocks[k], out[k]), range(len(blocks))))
    return out
