"""Divide copies over all devices of a process: equal shares, without communication."""

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

# Each device gets a multiple of TILE copies: XLA vectorises small or odd shapes differently, and a copy's bits must
# not depend on the number of copies.
TILE = 32
_AXIS = "copies"
# By default JAX reserves most of a device's memory at its start, which leaves little to numba-cuda.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def platform() -> str:
    """Return the platform of JAX: ``cpu``, ``gpu`` or another; BadInput if JAX_PLATFORMS cannot be satisfied."""
    try:
        return jax.default_backend()
    except (RuntimeError, AssertionError) as error:  # AssertionError: the platform's plug-in is missing
        wanted = jax.config.values["jax_platforms"]
        reason = f" ({error})" if str(error) else ""
        raise BadInput(f"JAX_PLATFORMS: {wanted!r} found; JAX finds no such device here{reason}") from error


def device_memory() -> int:
    """Return the free bytes of a device, or those of the host if the device does not report its memory."""
    stats = jax.local_devices()[0].memory_stats() or {}
    return stats["bytes_limit"] - stats["bytes_in_use"] if "bytes_limit" in stats else host_memory()


def padded_indices(copies: int) -> NDArray[np.intp]:
    """Return the indices of B copies, repeated from the first on until every device has whole tiles."""
    tile = TILE * len(_mesh().devices)
    return np.arange(-(-copies // tile) * tile) % copies


def shard_over_devices(
    simulate: Callable[..., Any], taken: Sequence[Any], returned: Sequence[Any]
) -> Callable[..., Any]:
    """Return a traced function of copies that runs on all devices, each with its share of the copies.

    Args:
        simulate: the function.
        taken: for each argument the axis of copies, as a number for all its leaves or a tree of numbers; -1 passes
            the whole argument to every device.
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
