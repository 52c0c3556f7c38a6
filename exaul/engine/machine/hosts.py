"""Several hosts that play one sweep: each some of its trials."""

import jax
import numpy as np
from jax.experimental import multihost_utils
from numpy.typing import NDArray

from exaul.engine.checks import BadInput


def begin() -> None:
    """Meet the other processes of the cluster that this one runs in, as its environment variables say.

    Raises:
        BadInput: there is no cluster that JAX knows.
    """
    try:
        jax.distributed.initialize()
    except (ValueError, RuntimeError) as error:
        raise BadInput(f"distributed: no cluster found ({' '.join(str(error).split())})") from error


def number() -> int:
    """Of this process, from 0; the first writes."""
    return jax.process_index()


def many() -> int:
    """How many processes play the sweep."""
    return jax.process_count()


def share(trials: NDArray[np.int64]) -> NDArray[np.int64]:
    """The trials that this process plays.

    Raises:
        BadInput: there are fewer than processes.
    """
    if len(trials) < jax.process_count():
        raise BadInput(f"trials: {len(trials)} found; {jax.process_count()} processes need one each")
    return np.array_split(trials, jax.process_count())[jax.process_index()]


def gathered(message: bytes) -> list[bytes]:
    """What each process says, in their order."""
    if jax.process_count() == 1:
        return [message]
    sizes = multihost_utils.process_allgather(np.array(len(message), np.int32))
    padded = np.zeros(int(sizes.max()), np.uint8)
    padded[: len(message)] = np.frombuffer(message, np.uint8)
    everything = multihost_utils.process_allgather(padded)
    return [bytes(row[:size]) for row, size in zip(everything, sizes, strict=True)]
