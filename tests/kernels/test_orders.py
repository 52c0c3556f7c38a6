"""Orders of records: bijections with the same bits everywhere, and uniform as far as counting shows.

Each case of a test of uniformity has the same share of ``RATE``, and each of its p-values the same share of that
(Bonferroni). P-values are those of limits (chi-square), true to a factor of a few so far out, or exact (Poisson).
So for independent uniform orders any test of a run fails with a probability below 1e-6.
"""

from collections import Counter
from functools import cache, partial
from itertools import product

import jax
import jax.numpy as jnp
import numba as nb
import numpy as np
import pytest
from scipy import special, stats

from exaul.kernels import uniforms
from exaul.kernels.native.compile import compiled, where, word
from exaul.kernels.records import compile_orders, order_shape

RATE = 1e-7
POOLS = 256  # the counter of pool p is (0, 256 + p)
KEYS, TRIPLES, PLACES = 16_384, 4, 2**20  # orders of a source, orders per ordered triple, places of whole orders
SIZES = [
    *range(2, 10),
    *(12, 16, 17, 31, 33, 64, 65, 100, 256, 257, 500, 1000, 1023, 1024, 1025),
    *(4096, 4097, 5000, 65536, 65537, 100_000),
]
WHOLE = [5, 16, 33, 64, 65, 500, 1000, 1023, 1024, 1025, 4096, 4097, 65536, 65537, 100_000]
SOURCES = ["trials", "laps", "pools", "both laps"]
SMALLEST = [*range(3, 10), 12, 15, 16, 17, 24, 31, 32, 33, 39, 40]  # all ordered triples are counted

numpy_order, *_ = compile_orders(lambda function: function, np.where, uniforms._word)
jax_order, *_ = compile_orders(lambda function: function, jnp.where, uniforms._word)
order, *_ = compile_orders(compiled, where, word)
_traced = {}  # programs of JAX by their passes


@nb.njit
def _fill(first, second, laps, shape, places, out):
    for i in range(len(laps)):
        for j in range(len(places)):
            out[j, i] = order((first[i], second[i]), laps[i], shape, places[j])


@nb.njit
def _is_bijection(x, visited):
    visited[:] = False
    for record in x:
        if record >= len(visited) or visited[record]:
            return False
        visited[record] = True
    return True


def numbers_at(keys, laps, shape, places):
    """[places, orders] records, of keys and laps [orders]."""
    out = np.empty((len(places), len(laps)), np.uint32)
    _fill(*keys, np.asarray(laps, np.uint32), shape, np.asarray(places, np.uint32), out)
    return out


def keys_of(trials, pools, seed=0):
    """Two uint32 arrays [trials], as the engine makes them."""
    pools = np.broadcast_to(np.asarray(pools, np.uint32), np.shape(trials))
    keys = uniforms.trial_keys(seed, uniforms.RECORDS_STREAM, trials)
    return uniforms.threefry(keys, (np.zeros_like(pools), pools + np.uint32(POOLS)))


@cache
def source(name, count):
    """Keys and laps of many orders that should be independent; even ones and the next ones are neighbours."""
    number, none = np.arange(count), np.zeros(count, int)
    return {
        "trials": lambda: (keys_of(number, 0), none),
        "laps": lambda: (keys_of(none + 3, 0), number),
        "pools": lambda: (keys_of(none + 3, number), none),
        "both laps": lambda: (keys_of(number // 2, 0), number % 2),
    }[name]()


def test_every_order_of_up_to_5000_records_is_a_bijection():
    visited, first, second = np.empty(5000, np.bool_), *keys_of(np.arange(5002), 1)
    places, laps = np.arange(5000, dtype=np.uint32), np.array([1, 2**32 - 1], np.uint32)
    for size in range(1, 5001):
        part = slice(size, size + (2 if size < 1100 else 1))
        x = np.empty((size, part.stop - size), np.uint32)
        _fill(first[part], second[part], laps[: part.stop - size], order_shape(size), places[:size], x)
        assert all(_is_bijection(row, visited[:size]) for row in x.T), size


@pytest.mark.parametrize("size", [65_536, 65_537, 100_000, 1_000_003, 2**20, 2**20 + 1])
def test_long_orders_are_bijections(size):
    keys, visited = keys_of([0, 0, 12_345, 6], [0, 3, 1, 0]), np.empty(size, np.bool_)
    for row in numbers_at(keys, [0, 1, 5, 2**31], order_shape(size), np.arange(size)).T:
        assert _is_bijection(row, visited)


@pytest.mark.parametrize("size", [2**30 - 1, 2**30, 2**30 + 2**15 + 1, 2**31 - 1, 2**31])
def test_the_largest_orders_do_not_overflow(size):
    """A sample: both ends, the edges of the rows, and places all over."""
    full = 1 << order_shape(size).shift
    ends = np.concatenate([np.arange(2000), size - 1 - np.arange(2000), full * np.arange(1, size // full)])
    places = np.unique(np.concatenate([ends, ends - 1, np.arange(0, size, 65_519)]).clip(0))
    x = numbers_at(keys_of([0, 7], 0), [0, 1], order_shape(size), places)
    assert x.max() < size
    for row in x.T:
        assert len(np.unique(row)) == len(places)
    p_value = stats.kstest(x[:, 0] / size, "uniform", args=(0, 1 - 1 / size)).pvalue
    assert p_value > RATE


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000, 1023, 1024, 1025, 100_000])
def test_numpy_jax_and_numba_give_the_same_orders(size):
    shape, places = order_shape(size), np.arange(size, dtype=np.uint32)
    longer = np.arange(-(-size // 2**17) * 2**17, dtype=np.uint32)  # of the places behind the last, nothing is read
    device_order = _traced.setdefault(
        shape.passes, jax.jit(lambda *x: jax_order(x[:2], x[2], shape._replace(size=x[3], shift=x[4]), x[5]))
    )
    words = np.uint32(shape.size), np.uint32(shape.shift)
    for trial, lap in [(0, 0), (0, 1), (5, 2), (77, 2**32 - 1)]:
        key, laps = keys_of([trial], 2), np.array([lap], np.uint32)
        host = numpy_order(key, laps, shape, places)
        device = np.asarray(device_order(*key, laps, *words, longer))[:size]
        numbers = numbers_at(key, laps, shape, places)[:, 0]
        assert host.dtype == device.dtype == numbers.dtype == np.uint32
        assert (host == numbers).all()
        assert (host == device).all()


# Statistics: each is the p-value of a count, for independent uniform orders.


def chi_square(counts, chances):
    """Of multinomial counts: too uneven or, where there are cells enough for that to be rare, too even."""
    possible = chances > 0
    if counts[~possible].any():
        return 0.0
    expected = counts.sum() * chances[possible]
    x = ((counts[possible] - expected) ** 2 / expected).sum()
    return both_tails(x, possible.sum() - 1) if possible.sum() > 16 else special.chdtrc(possible.sum() - 1, x)


def both_tails(x, freedom):
    """Of chi-square."""
    return 2 * min(special.chdtr(freedom, x), special.chdtrc(freedom, x))


def poisson(x, mean):
    return min(1.0, 2 * min(special.gammaincc(x + 1, mean), special.gammainc(x, mean)))


def binned(x, size, cells):
    """Cells of numbers that are uniform in 0..size-1, and the chance of each cell."""
    return x.astype(np.int64) * cells // size, np.bincount(np.arange(size) * cells // size, minlength=cells) / size


def uniform(x, size):
    """Of numbers that are uniform in 0..size-1."""
    cells, chances = binned(x, size, min(size, len(x) // 32))
    return chi_square(np.bincount(cells, minlength=len(chances)), chances)


def uniform_pairs(x, y, size):
    """Of independent pairs of such numbers."""
    side = min(size, int(np.sqrt(len(x) / 32)))
    (a, of_a), (b, of_b) = binned(x, size, side), binned(y, size, side)
    return chi_square(np.bincount(a * side + b, minlength=side**2), np.outer(of_a, of_b).ravel())


def gaps(x, y, shape):
    """Of two different records of each order: their distance in a circle, and along a row."""
    size, full = shape.size, 1 << shape.shift
    between = (y.astype(np.int64) - x) % size
    assert (between > 0).all()
    yield "distance", uniform(between - 1, size - 1)
    if full == 1:
        return
    heights = np.bincount(np.arange(size) % full, minlength=full)
    along = np.array([(heights * np.roll(heights, -k)).sum() for k in range(full)])
    along[0] -= size
    counts = np.bincount((y.astype(np.int64) - x) % full, minlength=full)
    yield "columns", chi_square(counts, along / (size * (size - 1)))


def pairs_and_places(x, shape):
    """(name, p-value) of the first, second, third, middle and last record, and of that below the first one."""
    first, second, third, middle, last, below = x
    size = shape.size
    for name, records in [("first", first), ("second", second), ("middle", middle), ("last", last)]:
        yield name, uniform(records, size)
        yield f"{name}, neighbours", uniform_pairs(records[::2], records[1::2], size)
        change = (records[1::2].astype(np.int64) - records[::2]) % size
        yield f"{name}, change between neighbours", uniform(change, size)
    yield "last, then first of the neighbour", uniform_pairs(last[::2], first[1::2], size)
    if size > 2:
        pairs = [("second", second), ("last", last)] + [("below", below)] * (1 << shape.shift < size)
        for name, records in pairs:
            yield from ((f"first, {name}: {statistic}", p) for statistic, p in gaps(first, records, shape))
        patterns = 4 * (first < second) + 2 * (second < third) + (first < third)
        chances = np.array([1, 0, 1, 1, 1, 1, 0, 1]) / 6
        yield "order of the first three", chi_square(np.bincount(patterns, minlength=8), chances)


def of_a_source(name, shape, times):
    size, count = shape.size, KEYS * times
    places = [0, 1, min(2, size - 1), size // 2, size - 1, min(1 << shape.shift, size - 1)]
    return dict(pairs_and_places(numbers_at(*source(name, count), shape, places), shape))


def of_triples(shape, times):
    """All ordered triples of the first three records."""
    size, per_triple = shape.size, TRIPLES * times
    largest = SMALLEST[-1] * (SMALLEST[-1] - 1) * (SMALLEST[-1] - 2)
    (first, second), laps = source("trials", largest * per_triple)
    count = max(size * (size - 1) * (size - 2) * per_triple, KEYS)
    x = numbers_at((first[:count], second[:count]), laps[:count], shape, range(3)).astype(np.int64)
    a, b, c = np.unravel_index(np.arange(size**3), (size, size, size))
    possible = (a != b) & (b != c) & (a != c)
    counts = np.bincount((x[0] * size + x[1]) * size + x[2], minlength=size**3)
    return {"triples": chi_square(counts, possible / possible.sum())}


def of_whole_orders(shape, times):
    """Counts over whole orders of two laps, each time with at most about ``PLACES`` places in all.

    Of steps between places in a row, in a column, and on a diagonal; and of blocks of records in blocks of places.
    """
    size, full, side = shape.size, 1 << shape.shift, min(16, shape.size)
    trials = max(4, min(PLACES // size, 8192) // 2)
    number, blocks, steps = 2 * trials * times, 0, Counter()
    lags = sorted({1, 2, full - 1, full, full + 1}) if size >= 64 else []  # there, steps are nearly independent
    for start, lap in product(range(0, times * trials, trials), (0, 1)):
        keys = keys_of(np.arange(start, start + trials), 0)
        x = numbers_at(keys, np.full(trials, lap), shape, range(size)).T.astype(np.int64)
        for lag in lags:
            moved = (x[:, lag:] - x[:, :-lag]) % size
            steps.update({(step, lag): (moved == step).sum() for step in lags})
        cells = np.arange(size) * side // size * side + x * side // size
        blocks = blocks + np.bincount(cells.ravel(), minlength=side**2)
    for (step, lag), count in steps.items():
        yield f"steps of {step}, {lag} places on", poisson(count, number * (size - lag) / (size - 1))
    # A table with given margins varies as hypergeometric numbers do: by N / (N - 1) more than chi-square
    sizes = np.bincount(np.arange(size) * side // size)
    expected = number * np.outer(sizes, sizes).ravel() / size
    yield "blocks", both_tails(((blocks - expected) ** 2 / expected).sum() * (size - 1) / size, (side - 1) ** 2)


KINDS = {name: partial(of_a_source, name) for name in SOURCES} | {"triples": of_triples, "whole": of_whole_orders}
CASES = [(name, size) for name in SOURCES for size in (SIZES if name == "trials" else SIZES[::3])]
CASES += [("triples", size) for size in SMALLEST] + [("whole", size) for size in WHOLE]


def unlikely(kind, shape, times=1):
    """The statistics whose probability is at most its share of the rate."""
    p_values = dict(KINDS[kind](shape, times))
    share = RATE / len(CASES) / len(p_values)
    return {name: p for name, p in p_values.items() if not p > share}


@pytest.mark.parametrize("times", [1, pytest.param(30, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("kind", "size"), CASES)
def test_orders_are_uniform(kind, size, times):
    """Places, and neighbours among independent orders; the first three records; whole orders."""
    assert unlikely(kind, order_shape(size), times) == {}


TOO_FEW = {  # passes by kind, and sizes at which they are seen
    ("trials", 1): (1000, 1023, 65_536, 65_537, 100_000),
    ("trials", 2): (4, 16, 33, 257, 5000),
    ("trials", 3): (5, 6, 7, 8, 9, 12, 16, 17),
    ("triples", 2): (4, 5, 6, 16, 17, 39),
    ("triples", 3): (5, 8),
    ("triples", 4): (6, 7),
    ("whole", 1): (65_536, 65_537, 100_000),
    ("whole", 2): (33, 1000, 1023, 1024, 1025, 4096, 4097),
    ("whole", 3): (64, 65),
}


@pytest.mark.parametrize(("kind", "passes", "size"), [(*key, size) for key, x in TOO_FEW.items() for size in x])
def test_too_few_passes_are_seen(kind, passes, size):
    assert unlikely(kind, order_shape(size)._replace(passes=passes))
