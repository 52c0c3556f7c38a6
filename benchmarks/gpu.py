"""Speed of the engine on an NVIDIA GPU, and the programs that it runs there.

    uv run --extra cuda12 python -m benchmarks gpu

With a GPU, the rates of ``throughput.py`` on it. Without one, the programs of a chunk, compiled by XLA for an H100
and an A100 from their figures. A compiled program shows how many kernels it launches and how much temporary memory
it needs; nothing is measured but the time of compilation.
"""

import re
from time import perf_counter
from typing import Any

from benchmarks import throughput
from benchmarks.peers import PeerCase
from benchmarks.results import Row
from benchmarks.throughput import ARMS
from exaul.engine import machine

ROUNDS = 2**25  # of all copies together
LEARNERS = ("exaul", "ew", "exp3-ix", "aci-rank")
COPIES = 1024, 65_536
BLOCKS = 8  # of a chunk
COMMON = """threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
threads_per_core_limit: 2048 block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
registers_per_core_limit: 65536 registers_per_block_limit: 65536
thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64"""
CHIPS = {  # figures of the vendor's data sheets
    "h100": f"""gpu_device_info {{ {COMMON} core_count: 132 fpus_per_core: 128 shared_memory_per_core: 233472
shared_memory_per_block_optin: 232448 memory_bandwidth: 3352320000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
device_memory_size: 84942979072 cuda_compute_capability {{ major: 9 }} dnn_version: "9.10.0" }}
platform_name: "CUDA" dnn_version_info {{ major: 9 minor: 10 }} device_description_str: "NVIDIA H100 80GB HBM3" """,
    "a100": f"""gpu_device_info {{ {COMMON} core_count: 108 fpus_per_core: 64 shared_memory_per_core: 167936
shared_memory_per_block_optin: 166912 memory_bandwidth: 2039040000000 l2_cache_size: 41943040 clock_rate_ghz: 1.41
device_memory_size: 85100068864 cuda_compute_capability {{ major: 8 }} dnn_version: "8.9.4" }}
platform_name: "CUDA" dnn_version_info {{ major: 8 minor: 9 patch: 4 }}
device_description_str: "NVIDIA A100-SXM4-80GB" """,
}
LAUNCHED = (  # operations of a compiled program that are a kernel or a copy each
    "fusion|fusion-start|copy-start|custom-call|sort|copy|scatter|reduce|transpose|dynamic-update-slice|concatenate"
    "|gather|reduce-window"
)
OPERATION = re.compile(rf" = .*? ({LAUNCHED}|call|while)\(")
COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \([^\n]*\) -> [^\n]* \{$(.*?)^\}", re.DOTALL | re.MULTILINE)


def run(quick: bool) -> list[Row]:
    """Return a row for each case; quick: of one learner."""
    names = LEARNERS[:1] if quick else LEARNERS
    pairs = [(name, x) for name in names for x in throughput.backends(name, "own") if x != "native"]
    if machine.platform() != "gpu":
        return [compile_chunk(chip, *pair, COPIES[0], ARMS) for chip in CHIPS for pair in pairs]
    sizes = [(copies, ARMS, ROUNDS // copies) for copies in COPIES[: 2 - quick]]
    groups = [[PeerCase(*pair, "own", *size) for pair in pairs] for size in sizes]
    return [row for cases in groups for row in throughput.measure(cases, 1 if quick else 3)]


def compile_chunk(chip: str, learner: str, backend: str, copies: int, arms: int) -> dict[str, Any]:
    """Compile 2,048 rounds for a chip, of copies with their own records; return what can be read off the program.

    Needs JAX's CUDA plugin; with JAX_PLATFORMS=cpu it looks for no driver.
    """
    import jax
    from jax.experimental import topologies

    from exaul.engine.simulation.batch import LearnerRun
    from exaul.engine.simulation.chunks import make_chunks, select_rates
    from exaul.engine.simulation.jax_chunks import simulate_chunk
    from exaul.engine.simulation.prepare import prepare_source
    from exaul.engine.sweep import Sweep
    from exaul.kernels.game import BLOCK

    topology = topologies.get_topology_desc(chip, "cuda", target_config=CHIPS[chip], topology="1x1x1")
    sharding = jax.sharding.SingleDeviceSharding(topology.devices[0])
    sizes: Any = {"trials": copies, "arms": arms, "horizon": BLOCKS * BLOCK, "checkpoints": (BLOCKS,)}
    sweep = Sweep(learners=(learner,), backend=backend, **sizes)
    source = prepare_source(sweep)
    (source_learner,) = source.learners
    chunk = next(make_chunks(source.checkpoints, copies))
    with jax.enable_x64(True):
        simulation: Any = LearnerRun(source, source_learner, source.trial_records()).simulation
        static, *arguments = simulation.arguments(chunk, select_rates(source_learner.rates, chunk.block_numbers))
        shapes = jax.eval_shape(lambda *x: x, simulation.carry, *arguments)
        sharded = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), shapes)
        lowered: Any = simulate_chunk.lower(*static, *sharded)
        start = perf_counter()
        program = lowered.compile()
        seconds = perf_counter() - start
    return {
        "chip": chip,
        "learner": learner,
        "backend": backend,
        "launches_per_round": count_launches(program.as_text()) / chunk.active.size,
        "temporary_mib": program.memory_analysis().temp_size_in_bytes / 2**20,
        "compile_seconds": seconds,
    }


def count_launches(program: str) -> int:
    """Return how many kernels and copies one call of a compiled program starts; a loop counts once per turn."""
    computations = COMPUTATION.findall(program)
    bodies = {name: body.splitlines() for _, name, body in computations}

    def count(name: str) -> int:
        return sum(of_operation(match[1], line) for line in bodies[name] if (match := OPERATION.search(line)))

    def of_operation(kind: str, line: str) -> int:
        if kind == "call":
            return count(re.findall(r"to_apply=%?([\w.\-]+)", line)[0])
        if kind != "while":
            return 1
        trips = re.search(r'"known_trip_count":\{"n":"(\d+)"', line)
        if trips is None:
            raise ValueError("a loop of unknown length; its launches cannot be counted")
        return int(trips[1]) * count(re.findall(r"body=%?([\w.\-]+)", line)[0])

    return sum(count(name) for is_entry, name, _ in computations if is_entry)
