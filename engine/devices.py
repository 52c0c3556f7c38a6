"""Copies over all devices of a process: each holds an equal share, and needs nothing of the others."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

TILE = 32  # copies are padded to multiples of this on each device: no lane's arithmetic depends on the others
_AXIS = "copies"


def padded(copies: int) -> NDArray[np.intp]:
    """Copies by number, the first of them again at the end, so that every device gets whole tiles."""
    tile = TILE * len(_mesh().devices)
    return np.arange(-(-copies // tile) * tile) % copies


def axes(make: Callable[[int], Any]) -> Any:
    """The axis of copies in each array of a tree, -1 where there is none: the one that grows with their number.

    Args:
        make: the tree for some number of copies; only its shapes are looked at.
    """
    few, more = (jax.eval_shape(partial(make, many)) for many in (TILE, 2 * TILE))
    return jax.tree.map(_differing, few, more)


def put(tree: Any, where: Any) -> Any:
    """A tree of arrays on all devices: split along its axes of copies, else whole on each."""

    def place(x: Any, axis: int) -> Any:
        names = [_AXIS if i == axis else None for i in range(np.ndim(x))]
        return jax.device_put(x, NamedSharding(_mesh(), PartitionSpec(*names)))

    return tree if len(_mesh().devices) == 1 else jax.tree.map(place, tree, where)


def put_whole(tree: Any) -> Any:
    """A tree of arrays whole on each device."""
    return put(tree, jax.tree.map(lambda _: -1, tree))


def _differing(few: Any, more: Any) -> int:
    return next((i for i, (a, b) in enumerate(zip(few.shape, more.shape, strict=True)) if a != b), -1)


@cache
def _mesh() -> Mesh:
    return Mesh(np.array(jax.local_devices()), (_AXIS,))
