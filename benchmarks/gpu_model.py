"""Modelled rates of the ``cuda`` backend on NVIDIA GPUs, for machines without one.

    uv run --group gpu python -m benchmarks gpu-model

numba-cuda compiles each kernel to PTX, and ptxas reports its registers and spills. ``ptx.py`` then executes the PTX
in Python on one warp, and counts what it executes. Its totals and weights must equal those of the dense backend.

Copies are simulated in waves. As many warps are resident as registers, shared memory and the chip allow; the others
wait until these have ended. The time of a round of a wave with w warps on the busiest scheduler is the largest of

    issue    w slots                      issue slots of a round of a warp, which holds some copies
    float64  w cycles of a float64 pipe   some chips have one per scheduler, others one for four schedulers
    latency  cycles                       of a round of a warp alone, which issues in order
    cache    bytes / bandwidth            between the first caches and the L2 cache
    memory   bytes / bandwidth            between the L2 cache and memory

Bytes are those of sectors of 32 bytes that are not in a warp's share of a cache.

All figures are labelled as modelled.
"""

import re
import struct
import subprocess
import sys
import tempfile
from collections import Counter
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
from exaul.kernels.backends.cuda import backend, loops, records, toolchain
from exaul.kernels.game import ROUNDS, Copies, Rates, Start, compute_costs
from exaul.kernels.learners.start import start_copies, start_of
from exaul.kernels.rates import block_rates
from exaul.kernels.records import Pool, make_streams

LEARNERS = ("exaul", "ew", "exp3-ix", "aci-rank")
COPIES = (1024, 65_536)
LANES = {32: backend.make_by_warps, 16: backend.make_by_half_warps, 1: backend.make}
NAMES = {32: "cuda-warps", 16: "cuda-half-warps", 1: "cuda"}
ARMS, RECORDS, HORIZON = 1000, 100_000, 30_000
BLOCKS = 2  # modelled blocks: the second starts with the weights that the first left in memory


class Chip(NamedTuple):
    """Numbers of the vendor's data sheets and of its programming guide."""

    capability: tuple[int, int] | tuple[int, int, str]
    cores: int  # streaming multiprocessors, with four schedulers each
    clock: float  # Hz
    pipes: int  # of float64 per core
    doubles: float  # cycles of a pipe for a float64 instruction of a warp
    latency: float  # cycles of a float64 instruction
    warps: int  # resident on a core, at most
    blocks: int  # resident on a core, at most
    shared: int  # bytes of shared memory per core, at most
    first: int  # bytes of the first cache of a core, and of its shared memory
    cache: float  # bytes of the L2 cache
    cached: float  # bytes per second of the L2 cache, roughly
    memory: float  # bytes per second

    @property
    def arch(self) -> str:
        """The name for ptxas."""
        return "sm_" + "".join(map(str, self.capability))


CHIPS = {
    "H100": Chip((9, 0, "a"), 132, 1.755e9, 4, 2, 8, 64, 32, 233_472, 262_144, 50e6, 5.5e12, 3.35e12),
    "A100": Chip((8, 0), 108, 1.41e9, 4, 4, 8, 64, 32, 167_936, 196_608, 40e6, 4.0e12, 2.04e12),
    # Two float64 units per core, as a T4, whose float64 instructions take 40 cycles.
    "RTX 4090": Chip((8, 9), 128, 2.52e9, 1, 16, 40, 48, 24, 102_400, 131_072, 72e6, 5.0e12, 1.008e12),
}
REGISTERS = 16_384  # of a scheduler, allocated to warps in units of 8 per thread
RESERVED = 1024  # bytes of shared memory that each block uses besides its own
NOTHING = "mov", "cvta", "ret"  # removed by ptxas, or free


def cost(chip: Chip, operation: str) -> ptx.Cost:
    """Return what a PTX instruction costs a warp.

    Divisions, branches and latencies of arithmetic are those of machine code by ptxas 12.9 for sm_80, sm_89 and
    sm_90a: its instructions, and the cycles that it schedules between a result and its use. Other numbers are
    estimates from published microbenchmarks. Loads are from shared memory or the first cache.
    """
    op, *kinds = operation.split(".")
    wide = bool(kinds) and kinds[-1].endswith("64")
    if op in NOTHING or operation in ("cvt.u64.u32", "cvt.u32.u64", "bfi.b64") or "param" in kinds:
        return ptx.Cost(0)  # a renamed half of a register pair, or a constant bank operand
    if op in ("ld", "atom", "ldu"):
        return ptx.Cost(1, 33)
    if op in ("st", "red"):
        return ptx.Cost(1)
    if op == "shfl":
        return ptx.Cost(2, 24)
    if op in ("vote", "popc", "bar"):
        return ptx.Cost(2, 12, waits=op == "bar")
    if op == "bra":
        return ptx.Cost(1, 5 if kinds else 13, waits=True)  # a condition is read 8 cycles later than by others
    if operation == "rcp.approx.ftz.f64":
        return ptx.Cost(1, 20)  # MUFU.RCP64H
    if op == "cvt" and ("f64" in kinds or "f32" in kinds):
        return ptx.Cost(2, 20)
    if kinds and kinds[-1] == "f64":
        # MUFU.RCP64H, then 8 float64 instructions (5 of a reciprocal), each of which reads the last one's result,
        # and a branch on the result, so that nothing of a second division overlaps.
        if operation == "div.rn.f64":
            return ptx.Cost(16, 48 + 8 * chip.latency, 8 * chip.doubles, True)
        if operation == "rcp.rn.f64":
            return ptx.Cost(11, 40 + 5 * chip.latency, 5 * chip.doubles, True)
        # Its slow path: a call for operands or results that are zero, subnormal or very large.
        if operation == "div.slow.f64":
            return ptx.Cost(67, 183 + 11 * chip.latency, 12 * chip.doubles, True)
        if op in ("selp", "neg", "abs"):
            return ptx.Cost(2, 8)
        return ptx.Cost(1, chip.latency, chip.doubles)
    if op == "bfe":
        return ptx.Cost(2, 10)
    if op in ("div", "rem"):
        return ptx.Cost(70, 250) if wide else ptx.Cost(20, 80)
    if (op == "mul" and wide) or (op == "mad" and wide):
        return ptx.Cost(4, 12)
    return ptx.Cost(2, 7) if wide else ptx.Cost(1, 5)


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
    """Return registers per thread, bytes of stack, of shared memory and spilled, and machine instructions."""
    from cuda.pathfinder import find_nvidia_binary_utility

    tool = find_nvidia_binary_utility("ptxas")
    assert tool is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ptx"
        # numba-cuda makes the same PTX for all of these chips, except for this line and numbers in symbols.
        path.write_text(re.sub(r"\.target sm_\w+", f".target {chip.arch}", text))
        command = [
            tool,
            "-v",
            f"-arch={chip.arch}",
            f"-maxrregcount={toolchain.REGISTERS}",
            "kernel.ptx",
            "-o",
            "kernel.cubin",
        ]
        output = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stderr
        code = (Path(folder) / "kernel.cubin").read_bytes()
    first = {"registers": r"Used (\d+) registers", "stack": r"(\d+) bytes stack", "shared": r"(\d+) bytes smem"}
    found = {name: re.search(pattern, output) for name, pattern in first.items()}
    spilled = sum(int(x) for x in re.findall(r"(\d+) bytes spill", output))
    return {name: int(x[1]) if x else 0 for name, x in found.items()} | {
        "spilled": spilled,
        "instructions": instructions(code),
    }


def instructions(code: bytes) -> int:
    """Return how many instructions of 16 bytes the executable sections of an ELF file hold."""
    start, size, many = struct.unpack_from("<Q10xHH", code, 40)
    sections = (struct.unpack_from("<8xQ16xQ", code, start + size * n) for n in range(many))
    return sum(length // 16 for flags, length in sections if flags & 4)


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


def first_of(name: str, copies: int) -> Start:
    """Return what some copies of a learner begin with."""
    cell = np.zeros(copies, np.int32)
    return start_copies(start_of(registry.load_object(registry.LEARNERS[name]).rule, ARMS, [0.1]), cell, cell)


def right(name: str, workload: Workload) -> tuple[Totals, Any]:
    """Return the totals and the state after a workload, from the dense backend."""
    made = backend_of(registry.load_object(registry.LEARNERS[name]), "dense", "float64")
    assert made is not None
    with jax.enable_x64(True):
        start = first_of(name, len(workload.copies.draw_stream))
        simulation = made.start(workload.copies, start, ARMS, workload.chunk.trial_records)
        simulation.start(workload.chunk, workload.rates)
        return Totals(*(x[-1, 0] for x in simulation.collect())), jax.tree.map(np.transpose, simulation.state)


def _close(x: Any, y: Any) -> bool:
    """Return whether states of copies agree; states of arms may differ by a constant per copy."""
    x, y = (np.atleast_2d(np.asarray(state)) for state in (x, y))
    if len(x) == ARMS:
        # Cumulative losses: only differences between arms matter, and backends subtract different constants.
        x, y = x - x[0], y - y[0]
    return np.allclose(x, y, rtol=1e-9, atol=1e-9)


def executed(name: str, kind: Any, text: str, lanes: int, environment: EnvironmentModel) -> ptx.ExecutionCounts:
    """Execute BLOCKS blocks of 32 copies (one per lane) or one (all lanes) on a warp; raise if dense disagrees."""
    copies = 32 // lanes
    workload = make_workload(name, copies, environment)
    when, stream = workload.chunk.schedule, workload.chunk.trial_records

    # One copy per lane: arms are rows, so that lanes read neighbouring words. A warp per copy: copies are rows.
    def laid_out(columns: Any) -> Any:
        return np.ascontiguousarray(columns if lanes == 1 else columns.T)

    wide = tuple(np.zeros(*x) for x in loops.wide_arrays(kind, lanes, "float64", ARMS, copies))
    memory, at_checkpoints = ptx.WarpMemory(), np.zeros((BLOCKS, 1, copies))
    sums = loops.KernelSums(
        np.zeros(copies, np.int64), np.zeros(copies), at_checkpoints.astype(np.int64), at_checkpoints
    )
    schedule = loops.KernelSchedule(
        when.block, when.active.sum(axis=1).astype(np.int32), 0 * when.checkpoint_rounds, *workload.rates
    )
    none = loops.KernelOutcome(*(np.zeros((1, 1), x) for x in (bool, float, float)))
    made = records.record_generator(stream.records, stream.draws.decision)
    state = np.array(laid_out(kind.first(ARMS, first_of(name, copies))))
    everything = state, ARMS, wide, made, schedule, workload.copies, sums, none
    done = ptx.run(ptx.PtxProgram(text), memory, flat(memory, everything), 32, 0)
    totals, after = right(name, workload)
    same = all(np.array_equal(x, y) for x, y in zip(sums[:2], totals, strict=True))
    if kind.dense_state is not None:
        own = kind.dense_state(state if lanes == 1 else state.T, workload.copies.parameters(workload.rates))
        same = same and all(map(_close, jax.tree.leaves(own), jax.tree.leaves(after)))
    if not same:
        raise RuntimeError(f"{name} by {lanes} lanes disagrees with dense")
    return done


def modelled(
    chip: Chip, copies: int, lanes: int, built: dict[str, int], done: ptx.ExecutionCounts
) -> dict[str, Any]:
    """Return the columns of a row that depend on the chip and on the number of copies."""
    each, rounds = 32 // lanes, BLOCKS * ROUNDS  # ``each`` copies of a warp, which is a block
    counts = done.counts + Counter({"div.slow.f64": done.slow})
    costs = {x: cost(chip, x) for block in done.program.kinds for x, *_ in block}
    costs["div.slow.f64"] = slow = cost(chip, "div.slow.f64")
    slots = sum(costs[x].slots * many for x, many in counts.items()) / rounds
    doubles = sum(costs[x].doubles * many for x, many in counts.items()) / rounds

    def wave(warps: int) -> tuple[dict[str, float], dict[str, float]]:
        """Return the cycles of a round of a wave by what bounds them, and columns of the table."""
        here = -(-warps // chip.cores)  # on the busiest core
        # A warp's share of the first cache and of the L2 cache, in sectors.
        held = (chip.first - here * (built["shared"] + RESERVED)) // here // 32, int(chip.cache) // warps // 32
        alone, sectors = ptx.timed(done, costs, held, (270, 600))
        cycles, moved = (alone + slow.latency * done.slow) / rounds, 32 * np.array(sectors) / rounds
        bounds = {
            "issue": slots * -(-warps // (4 * chip.cores)),
            "float64": doubles * -(-warps // (chip.pipes * chip.cores)),
            "latency": cycles,
            "cache": moved[0] * warps * chip.clock / chip.cached,
            "memory": moved[1] * warps * chip.clock / chip.memory,
        }
        return bounds, {"cycles": cycles, "bytes": moved[0] / each, "memory": moved[1] / each}

    registers = 4 * (REGISTERS // (32 * 8 * -(-built["registers"] // 8)))
    resident = min(chip.warps, chip.blocks, registers, chip.shared // (built["shared"] + RESERVED))
    warps = copies // each
    full, rest = divmod(warps, min(warps, resident * chip.cores))
    first, columns = wave(min(warps, resident * chip.cores))
    total = full * max(first.values()) + (max(wave(rest)[0].values()) if rest else 0.0)
    return {
        "copies": copies,
        **built,
        "warps": resident,
        "waves": full + (rest > 0),
        "executed": sum(many for x, many in done.counts.items() if costs[x].slots) / rounds,
        "slots": slots,
        "float64": doubles,
        "slow": done.slow / rounds,
        **columns,
        "bound": max(first, key=lambda x: first[x]),
        "rounds_per_second": copies * chip.clock / total,
    }


def run_learner(name: str, *chips: str) -> list[dict[str, Any]]:
    """Return modelled rows of a learner on these chips.

    Each kernel is first compared with dense in an environment of two pools, of which one starts a second lap.
    """
    rows = []
    for lanes, make in LANES.items():
        made = make(registry.load_object(registry.LEARNERS[name]), "float64")
        if made is None:
            continue
        kind, chip = made.kind, CHIPS[chips[0]]
        executed(name, kind, compiled(kind, lanes, "float64", chip, TWO), lanes, TWO)
        text = compiled(kind, lanes, "float64", chip, ONE)
        done = executed(name, kind, text, lanes, ONE)
        head = {"figure": "modelled", "learner": name, "backend": NAMES[lanes]}
        for chip_name in chips:
            chip = CHIPS[chip_name]
            built = assembled(text, chip)
            row_head = head | {"order": "own", "chip": chip_name}
            rows += [row_head | modelled(chip, n, lanes, built, done) for n in COPIES]
    return rows


def run(quick: bool) -> list[dict[str, Any]]:
    """Return modelled rows for all chips."""
    rows = []
    for name in LEARNERS[: 1 if quick else None]:
        try:
            found = run_learner(name, *list(CHIPS)[: 1 if quick else None])
        except NotImplementedError as error:
            print(f"{name}: {error} is not known to the model", file=sys.stderr)
            continue
        rows += found
        print("\n".join(table(found).splitlines()[2:]), file=sys.stderr)
    return sorted(rows, key=lambda row: list(CHIPS).index(row["chip"]))


COLUMNS = (
    "figure", "kind", "learner", "backend", "order", "chip", "copies", "registers", "spilled", "instructions",
    "warps", "waves", "executed", "slots", "float64", "slow", "cycles", "bytes", "memory", "bound", "seconds",
    "holds", "error", "differ", "rounds_per_second", "failure",
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
        style |= {"linestyle": {"cuda": "-", "cuda-warps": "--", "cuda-half-warps": "-."}.get(where, ":")}
        axes.loglog(*zip(*points, strict=True), **style, label=f"{name}, {where}")
    axes.set_xlabel("copies")
    axes.set_ylabel(f"learner-rounds a second, {first['figure']}, {first['chip']}")
    figure.legend(frameon=False, fontsize=7, loc="outside right center")
    axes.spines[["top", "right"]].set_visible(False)
    return figure
