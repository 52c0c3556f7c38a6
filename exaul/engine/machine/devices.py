"""Copies over all devices of a process: each device plays an equal share, and needs nothing of the others."""

import os
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from numpy.typing import NDArray

from exaul.engine.checks import BadInput
from exaul.engine.machine.memory import on_host

TILE = 32  # copies are padded to multiples of this on each device: no lane's arithmetic depends on the others
_AXIS = "copies"
# JAX would take most of a device's memory at its start, and leave little to numba-cuda
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def platform() -> str:
    """What JAX computes on: ``cpu``, ``gpu``...

    Raises:
        BadInput: it finds no device of the kind that it was told to use.
    """
    try:
        return jax.default_backend()
    except (RuntimeError, AssertionError) as error:  # the second where the platform's plug-in is not installed
        wanted = jax.config.values["jax_platforms"]
        reason = f" ({error})" if str(error) else ""
        raise BadInput(f"JAX_PLATFORMS: {wanted!r} found; JAX finds no such device here{reason}") from error


def on_device() -> int:
    """Bytes that are free on each device: where it does not say, those of the host."""
    stats = jax.local_devices()[0].memory_stats() or {}
    return stats["bytes_limit"] - stats["bytes_in_use"] if "bytes_limit" in stats else on_host()


def padded(copies: int) -> NDArray[np.intp]:
    """The numbers of B copies, padded to whole tiles on every device with the first copies again."""
    tile = TILE * len(_mesh().devices)
    return np.arange(-(-copies // tile) * tile) % copies


def axes(make: Callable[[int], Any]) -> tuple[int, ...]:
    """The axis of copies in each leaf of a tree, -1 where a leaf has none.

    It is the axis whose length grows with the number of copies.

    Args:
        make: the tree for some number of copies; only its shapes are looked at.
    """
    few, more = (jax.tree.leaves(jax.eval_shape(partial(make, many))) for many in (TILE, 2 * TILE))
    return tuple(
        next((i for i, (x, y) in enumerate(zip(a.shape, b.shape, strict=True)) if x != y), -1)
        for a, b in zip(few, more, strict=True)
    )


def spread(play: Callable[..., Any], taken: Sequence[Any], returned: Callable[[Any], Any]) -> Callable[..., Any]:
    """A traced function of copies, run on all devices, each with its share of the copies.

    Args:
        play: the function; the leaves of its arguments have axes of copies.
        taken: for each argument the axis of copies of all its leaves, or a tuple with one axis a leaf; -1 where
            every device needs the whole of it.
        returned: makes the axes of the results, as a tree, from those of the arguments.
    """
    if len(_mesh().devices) == 1:
        return play

    def played(*arguments: Any) -> Any:
        trees = [_tree(argument, axis) for argument, axis in zip(arguments, taken, strict=True)]
        specs = tuple(jax.tree.map(_spec, tree) for tree in trees)
        out = jax.tree.map(_spec, returned(trees))
        return jax.shard_map(play, mesh=_mesh(), in_specs=specs, out_specs=out, check_vma=False)(*arguments)

    return played


def _tree(argument: Any, axis: int | tuple[int, ...]) -> Any:
    leaves, tree = jax.tree.flatten(argument)
    return jax.tree.unflatten(tree, (axis,) * len(leaves) if isinstance(axis, int) else axis)


def _spec(axis: int) -> PartitionSpec:
    return PartitionSpec() if axis < 0 else PartitionSpec(*[None] * axis, _AXIS)


@cache
def _mesh() -> Mesh:
    return Mesh(np.array(jax.local_devices()), (_AXIS,))
