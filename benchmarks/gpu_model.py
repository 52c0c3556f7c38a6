"""Modelled rates of the ``cuda`` backend on NVIDIA GPUs, for machines without one.

    uv run --group gpu python -m benchmarks gpu-model

numba-cuda compiles each kernel to PTX, and ptxas reports its registers and spills. ``ptx.py`` then executes the PTX
in Python on one warp: its totals and weights must equal those of the dense backend, and the executed instructions
are counted. Each instruction is weighed by its issue slots and its latency. With W warps on each of a chip's
schedulers, at f clocks per second, the modelled rate is the least of

    issue    schedulers f copies / slots             slots of a round of a warp, which holds some copies
    latency  schedulers f copies W / cycles          cycles of a round of a warp alone, issued in order
    memory   bandwidth / bytes                       as if no cache held what does not fit into the L2 cache

All figures are labelled as modelled.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import jax
import numpy as np
from matplotlib.figure import Figure

from benchmarks import ptx
from exaul.engine import registry
from exaul.engine.environments.oblivious import Oblivious, segmented_pool
from exaul.engine.simulation import device_check
from exaul.engine.simulation.backends import backend_of
from exaul.engine.simulation.schedule import Chunk, Schedule, TrialRecords
from exaul.engine.simulation.simulation import Totals, rates_of_blocks
from exaul.kernels.backends.cuda import backend, loops, records
from exaul.kernels.game import ROUNDS, Copies, Rates, compute_costs
from exaul.kernels.rates import block_rates
from exaul.kernels.records import Pool, make_streams

LEARNERS = ("exaul", "ew", "exp3-ix", "log-price", "threshold", "ranked-threshold")
COPIES = (1024, 65_536)
LANES = {1: backend.make, 32: backend.make_by_warps}
ARMS, RECORDS, HORIZON = 1000, 100_000, 30_000
BLOCKS = 2  # modelled blocks: the second starts with the weights that the first left in memory


class Chip(NamedTuple):
    """Numbers of the vendor's data sheets."""

    capability: tuple[int, int]
    cores: int  # streaming multiprocessors, with four schedulers each
    clock: float  # Hz
    doubles: float  # issue slots of a float64 instruction of a warp
    registers: int  # per core
    shared: int  # bytes of shared memory per core
    cache: float  # bytes of the L2 cache
    cached: float  # bytes per second of the L2 cache, roughly
    memory: float  # bytes per second


CHIPS = {
    "H100": Chip((9, 0), 132, 1.755e9, 2, 65_536, 233_472, 50e6, 5.5e12, 3.35e12),
    "A100": Chip((8, 0), 108, 1.41e9, 4, 65_536, 167_936, 40e6, 4.0e12, 2.04e12),
}
NOTHING = "mov", "cvta", "ret"  # removed by ptxas, or free


def cost(chip: Chip, reach: float, operation: str) -> tuple[float, float]:
    """Return issue slots of a PTX instruction for a warp, and cycles until its result can be read.

    Estimates from published microbenchmarks. ``reach`` is the latency of loads from global memory, which depends on
    the cache that holds the data of all copies.
    """
    op, *kinds = operation.split(".")
    wide = kinds[-1].endswith("64") if kinds else False
    if op in NOTHING or operation in ("cvt.u64.u32", "cvt.u32.u64", "bfi.b64") or "param" in kinds:
        return 0, 0  # a renamed half of a register pair, or a constant bank operand
    if op in ("ld", "atom", "ldu"):
        return 1, 33 if kinds[0] in ("local", "shared") else reach
    if op in ("st", "red"):
        return 1, 0
    if op == "shfl":
        return 2, 24
    if op in ("vote", "popc", "bar"):
        return 2, 12
    # Division and reciprocal are Newton iterations in float64 and integer code around them.
    if kinds and kinds[-1] == "f64":
        if op in ("div", "rcp"):
            return 10 * chip.doubles + 8, 120
        return (2, 8) if op in ("selp", "neg", "abs") else (chip.doubles, 8)
    if op in ("div", "rem"):
        return (70, 250) if wide else (20, 80)
    if (op == "mul" and wide) or (op == "mad" and wide):
        return 4, 12
    return (2, 7) if wide else (1, 5)


class EnvironmentModel(NamedTuple):
    """The source of records; every copy has its own order."""

    environment: Oblivious
    sizes: tuple[int, ...]  # of the pools


ONE, TWO = (
    EnvironmentModel(segmented_pool(1), (RECORDS,)),
    EnvironmentModel(device_check.CHECK_ENVIRONMENT, device_check.SIZES),
)


def compiled(kind: Any, lanes: int, precision: str, chip: Chip, environment: EnvironmentModel) -> str:
    """Return the PTX of a learner's kernel that makes its own records."""
    from exaul.kernels.backends.cuda import device
    from exaul.kernels.backends.cuda.device import cuda

    pool, pools = environment.environment.choose_pool, len(environment.sizes)
    kernel = device.kernel(
        kind.loop,
        kind.sizes,
        lambda on: records.generate_records(on, pool, pools, True),
        pools,
        lanes,
        precision,
        False,
    )
    signature = device.signature(precision)
    nowhere = SimpleNamespace(compute_capability=chip.capability)
    with mock.patch.object(cuda.dispatcher, "get_current_device", return_value=nowhere):  # no device
        text, _ = cuda.compile(kernel, signature, cc=chip.capability, device=False, abi="numba", output="ptx")
    return text if isinstance(text, str) else text.decode()


def assembled(text: str, chip: Chip) -> dict[str, int]:
    """Return registers per thread and bytes spilled, of stack and of shared memory, as ptxas reports them."""
    from cuda.pathfinder import find_nvidia_binary_utility

    tool = find_nvidia_binary_utility("ptxas")
    assert tool is not None
    arch = f"-arch=sm_{chip.capability[0]}{chip.capability[1]}"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel.ptx").write_text(text)
        command = [tool, "-v", arch, "kernel.ptx", "-o", "kernel.cubin"]
        output = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stderr
    first = {"registers": r"Used (\d+) registers", "stack": r"(\d+) bytes stack", "shared": r"(\d+) bytes smem"}
    found = {name: re.search(pattern, output) for name, pattern in first.items()}
    spilled = sum(int(x) for x in re.findall(r"(\d+) bytes spill", output))
    return {name: int(x[1]) if x else 0 for name, x in found.items()} | {"spilled": spilled}


def flat(memory: ptx.WarpMemory, x: Any) -> list[int]:
    """Return the parameters of a kernel as numba-cuda passes them: an array becomes seven or more numbers."""
    if isinstance(x, np.ndarray):
        # numba-cuda's layout of an array: meminfo, parent, size, item size, address, shape, strides.
        return [0, 0, x.size, x.itemsize, memory.place(x), *x.shape, *x.strides]
    return [y for z in x for y in flat(memory, z)] if isinstance(x, tuple) else [x]


class Workload(NamedTuple):
    """The first blocks of a sweep of some copies, each with its own order of records."""

    chunk: Chunk
    rates: Rates
    copies: Copies


def make_workload(name: str, copies: int, environment: EnvironmentModel) -> Workload:
    """Return the workload of some copies of a learner."""
    rng, learner = np.random.default_rng(0), registry.load_object(registry.LEARNERS[name])
    pools = []
    for size in environment.sizes:
        scores = rng.beta(4, 1, size)
        cuts = np.clip((scores * (ARMS - 1)).astype(np.int32) + 1, 1, ARMS - 1)
        pools.append(Pool(cuts, (rng.random(size) > scores**0.5).astype(np.float64)))
    number, rounds = np.arange(copies, dtype=np.int32), BLOCKS * ROUNDS
    stream = TrialRecords(
        make_streams(environment.environment.choose_pool, True, pools, rounds, 0, number), rounds, 0, number
    )
    block = np.arange(BLOCKS, dtype=np.uint32)
    checkpoint_rounds = np.where(block == BLOCKS - 1, ROUNDS, 0)[:, None].astype(np.int32)
    schedule = Schedule(block, np.ones((BLOCKS, ROUNDS), bool), checkpoint_rounds)
    rates = block_rates(learner, HORIZON, ARMS, learner.rates is None, None, None)
    alpha = np.full(copies, 0.1)
    numbers = Copies(alpha, *compute_costs(alpha, np.full(copies, HORIZON**0.5)), number, number)
    return Workload(Chunk(schedule, stream), rates_of_blocks(rates, block), numbers)


def right(name: str, workload: Workload) -> tuple[Totals, Any]:
    """Return the totals and the state after a workload, from the dense backend."""
    made = backend_of(registry.load_object(registry.LEARNERS[name]), "dense", "float64")
    assert made is not None
    with jax.enable_x64(True):
        best = np.zeros(len(workload.copies.draw_stream), np.int32)
        simulation = made.start(workload.copies, best, ARMS, workload.chunk.trial_records)
        simulation.start(workload.chunk, workload.rates)
        return Totals(*(x[-1, 0] for x in simulation.collect())), jax.tree.map(np.transpose, simulation.state)


def _close(x: Any, y: Any) -> bool:
    """Return whether states of copies agree; states of arms may differ by a constant per copy."""
    x, y = (np.atleast_2d(np.asarray(state)) for state in (x, y))
    if len(x) == ARMS:
        # Cumulative losses: only differences between arms matter, and backends subtract different constants.
        x, y = x - x[0], y - y[0]
    return np.allclose(x, y, rtol=1e-9, atol=1e-9)


def executed(
    name: str, kind: Any, text: str, lanes: int, chip: Chip, reach: float, environment: EnvironmentModel
) -> ptx.ExecutionCounts:
    """Execute BLOCKS blocks of 32 copies (one per lane) or one (all lanes) on a warp; raise if dense disagrees."""
    copies = 32 // lanes
    workload = make_workload(name, copies, environment)
    when, stream = workload.chunk.schedule, workload.chunk.trial_records
    sizes, best = kind.sizes(lanes), np.zeros(copies, np.int32)

    # One copy per lane: arms are rows, so that lanes read neighbouring words. A warp per copy: copies are rows.
    def laid_out(columns: Any) -> Any:
        return np.ascontiguousarray(columns if lanes == 1 else columns.T)

    rows = sizes.wide_words(ARMS), sizes.wide_words(ARMS), sizes.wide_sums(ARMS)
    kinds = np.uint32, np.int32
    wide = (
        *(laid_out(np.zeros((n, copies), x)) for n, x in zip(rows[:2], kinds, strict=False)),
        np.zeros((copies, rows[2])),
    )
    memory, at_checkpoints = ptx.WarpMemory(), np.zeros((BLOCKS, 1, copies))
    sums = loops.KernelSums(
        np.zeros(copies, np.int64), np.zeros(copies), at_checkpoints.astype(np.int64), at_checkpoints
    )
    schedule = loops.KernelSchedule(
        when.block, when.active.sum(axis=1).astype(np.int32), 0 * when.checkpoint_rounds, *workload.rates
    )
    none = loops.KernelOutcome(*(np.zeros((1, 1), x) for x in (bool, float, float)))
    made = records.record_generator(stream.records, stream.draws.decision)
    state = np.array(laid_out(kind.start(ARMS, best)))
    everything = state, ARMS, wide, made, schedule, workload.copies, sums, none
    done = ptx.run(ptx.PtxProgram(text), memory, flat(memory, everything), 32, 0, lambda x: cost(chip, reach, x))
    totals, after = right(name, workload)
    same = all(np.array_equal(x, y) for x, y in zip(sums[:2], totals, strict=True))
    if kind.dense_state is not None:
        own = kind.dense_state(state if lanes == 1 else state.T, workload.copies.parameters(workload.rates))
        same = same and all(map(_close, jax.tree.leaves(own), jax.tree.leaves(after)))
    if not same:
        raise RuntimeError(f"{name} by {lanes} lanes disagrees with dense")
    return done


def check(name: str, kind: Any, chip: Chip, lanes: int) -> None:
    """Compare a kernel with dense in an environment of two pools, of which one starts a second lap."""
    executed(name, kind, compiled(kind, lanes, "float64", chip, TWO), lanes, chip, 0.0, TWO)


def modelled(name: str, kind: Any, chip_name: str, lanes: int, copies: int) -> dict[str, Any]:
    """Return a row: compiled sizes, counts, and the modelled rate with its bound."""
    chip = CHIPS[chip_name]
    text = compiled(kind, lanes, "float64", chip, ONE)
    built = assembled(text, chip)
    each = 32 // lanes
    numbers = len(kind.start(ARMS, np.zeros(1, np.int32))) + kind.sizes(lanes).wide_sums(ARMS)
    needed = copies * (8 * numbers + built["stack"])
    fits = needed < chip.cache
    # Cycles of a global load: about 40 if the data of all copies fit into L1, 270 for L2, 600 for memory.
    reach = 40 if needed / chip.cores + 8 * built["shared"] < chip.shared else 270 if fits else 600
    done = executed(name, kind, text, lanes, chip, reach, ONE)
    rounds = BLOCKS * ROUNDS
    slots = sum(cost(chip, reach, x)[0] * many for x, many in done.counts.items()) / rounds
    cycles = done.cycles / rounds
    moved = sum(many for x, many in done.moved.items() if not x.endswith("shared")) / rounds / each
    # Warps per core are limited by the hardware (64), registers, shared memory, and 32 blocks of one warp.
    resident = min(64, chip.registers // (32 * built["registers"]), chip.shared // max(built["shared"], 1), 32)
    schedulers = 4 * chip.cores
    warps = min(copies / each / schedulers, resident / 4)
    bounds = {
        # With fewer warps than schedulers, the others idle.
        "issue": schedulers * chip.clock * each / slots * min(1.0, copies / each / schedulers),
        "latency": schedulers * chip.clock * each * warps / cycles,
        "memory": (chip.cached if fits else chip.memory) / moved,
    }
    bound = min(bounds, key=lambda x: bounds[x])
    return {
        "figure": "modelled",
        "learner": name,
        "chip": chip_name,
        "copies": copies,
        "backend": "cuda" if lanes == 1 else "cuda-warps",
        "order": "own",
        **built,
        "slots": slots,
        "cycles": cycles,
        "bytes": moved,
        "bound": bound,
        "rounds_per_second": bounds[bound],
    }


def run(quick: bool) -> list[dict[str, Any]]:
    """Return modelled rows for all chips."""
    rows = []
    for chip in list(CHIPS)[: 1 if quick else None]:
        for name in LEARNERS[: 1 if quick else None]:
            for lanes, make in LANES.items():
                made = make(registry.load_object(registry.LEARNERS[name]), "float64")
                if made is None:
                    continue
                try:
                    check(name, made.kind, CHIPS[chip], lanes)
                    found = [modelled(name, made.kind, chip, lanes, copies) for copies in COPIES]
                except NotImplementedError as error:
                    print(f"{name}: {error} is not known to the model", file=sys.stderr)
                    continue
                rows += found
                print("\n".join(table(found).splitlines()[2:]), file=sys.stderr)
    return rows


COLUMNS = (
    "figure", "kind", "learner", "backend", "order", "chip", "copies", "registers", "spilled", "slots", "cycles",
    "bytes", "bound", "seconds", "holds", "error", "differ", "rounds_per_second", "failure",
)  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    """Return Markdown of measured, counted and modelled columns; a column appears if a row has it."""

    def text(x: Any) -> str:
        return f"{x:.3g}" if isinstance(x, float) else str(x)

    names = [name for name in COLUMNS if any(name in row for row in rows)]
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    return "\n".join(lines + ["| " + " | ".join(text(row.get(x, "")) for x in names) + " |" for row in rows])


def draw(rows: list[dict[str, Any]]) -> Figure:
    """Draw rates against copies with own records, one line per learner and backend, on the first chip."""
    figure = Figure(figsize=(7, 3.5), layout="constrained")
    axes = figure.subplots()
    first = rows[0]
    drawn = [row for row in rows if (row["figure"], row["chip"]) == (first["figure"], first["chip"])]
    lines = dict.fromkeys((row["learner"], row["backend"]) for row in drawn)
    names = list(dict.fromkeys(name for name, _ in lines))
    for name, where in lines:
        points = sorted(
            (row["copies"], row["rounds_per_second"])
            for row in drawn
            if (row["learner"], row["backend"], row["order"]) == (name, where, "own")
        )
        style = {"color": f"C{names.index(name)}", "marker": "os^vDP"[names.index(name)]}
        style |= {"linestyle": {"cuda": "-", "cuda-warps": "--"}.get(where, ":")}
        axes.loglog(*zip(*points, strict=True), **style, label=f"{name}, {where}")
    axes.set_xlabel("copies")
    axes.set_ylabel(f"learner-rounds a second, {first['figure']}, {first['chip']}")
    figure.legend(frameon=False, fontsize=7, loc="outside right center")
    axes.spines[["top", "right"]].set_visible(False)
    return figure
