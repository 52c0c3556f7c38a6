"""Copies over all devices of a process: each device plays an equal share, and needs nothing of the others."""

import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from numpy.typing import NDArray

from exaul.engine.checks import BadInput
from exaul.engine.machine.memory import host_memory

TILE = 32  # copies are padded to multiples of this on each device: no copy's arithmetic depends on the others
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


def device_memory() -> int:
    """Bytes that are free on each device: where it does not say, those of the host."""
    stats = jax.local_devices()[0].memory_stats() or {}
    return stats["bytes_limit"] - stats["bytes_in_use"] if "bytes_limit" in stats else host_memory()


def padded_indices(copies: int) -> NDArray[np.intp]:
    """The numbers of B copies, padded to whole tiles on every device with the first copies again."""
    tile = TILE * len(_mesh().devices)
    return np.arange(-(-copies // tile) * tile) % copies


def shard_over_devices(
    simulate: Callable[..., Any], taken: Sequence[Any], returned: Sequence[Any]
) -> Callable[..., Any]:
    """A traced function of copies, run on all devices, each with its share of the copies.

    Args:
        simulate: the function.
        taken: for each argument the axis of copies of its leaves, one number or a tree of numbers as of
            ``jax.tree``; -1 where every device needs the whole of it.
        returned: the same for each result.
    """
    if len(_mesh().devices) == 1:
        return simulate
    ins, outs = (jax.tree.map(_spec, tuple(axes)) for axes in (taken, returned))
    return jax.shard_map(simulate, mesh=_mesh(), in_specs=ins, out_specs=outs, check_vma=False)


def _spec(axis: int) -> PartitionSpec:
    return PartitionSpec() if axis < 0 else PartitionSpec(*[None] * axis, _AXIS)


@cache
def _mesh() -> Mesh:
    return Mesh(np.array(jax.local_devices()), (_AXIS,))
