"""The reader of PTX: what numba-cuda's kernels contain, on programs of a few lines."""

import numpy as np
import pytest

from benchmarks import gpu_model, ptx


def run(lines, array, lanes=1):
    """What ``ptx.run`` returns for a kernel of these lines, to which %rd1 is the address of an array."""
    entry = ".visible .entry kernel(\n.param .u64 kernel_param_0\n)\n{\n.local .align 8 .b8 __local_depot0[64];\n"
    text = f"{entry}ld.param.u64 %rd1, [kernel_param_0];\n{lines}\nret;\n}}\n"
    memory = ptx.WarpMemory()
    return ptx.run(ptx.PtxProgram(text), memory, [memory.place(array)], lanes, 0)


@pytest.mark.parametrize(
    ("lines", "kind", "result"),
    [
        ("rcp.approx.ftz.f64 %fd2, 0d4008000000000000;", "f64", (1 / 3) // 2**-22 * 2**-22),
        # 1 - (1 + 2^-52)(1 - 2^-53) = -2^-53 + 2^-105: no type of numpy holds the product.
        ("fma.rn.f64 %fd2, 0dBFF0000000000001, 0d3FEFFFFFFFFFFFFF, 0d3FF0000000000000;", "f64", 2**-105 - 2**-53),
        ("mov.u32 %r1, 65534; st.u16 [%rd1], %r1; ld.u16 %rs1, [%rd1]; cvt.u32.u16 %r2, %rs1;", "u32", 65534),
        ("mov.u32 %r1, 65534; st.u16 [%rd1], %r1; ld.s16 %r2, [%rd1];", "u32", 2**32 - 2),
        ("mov.u32 %r1, 510; st.u8 [%rd1], %r1; ld.u16 %r2, [%rd1];", "u32", 254),
        ("mov.u32 %r1, 510; st.u16 [%rd1], %r1; ld.u8 %r2, [%rd1];", "u32", 254),
        ("mov.u16 %rs1, 65535; setp.lt.s16 %p1, %rs1, 0; selp.b32 %r2, 1, 0, %p1;", "u32", 1),
        ("mov.b32 %r1, 0x00020003; mov.b32 {%rs1, %rs2}, %r1; mov.b32 %r2, {%rs2, %rs1};", "u32", 0x00030002),
        ("mov.u32 %r1, -1; mul.wide.u32 %rd2, %r1, 2;", "u64", 2**33 - 2),
        ("mov.u32 %r1, -1; mov.u64 %rd3, 5; mad.wide.u32 %rd2, %r1, 2, %rd3;", "u64", 2**33 + 3),
        ("mov.u32 %r1, -1; mov.u32 %r3, 7; min.u32 %r2, %r1, %r3;", "u32", 7),
        ("mov.u32 %r1, -1; mov.u32 %r3, 7; max.u32 %r2, %r1, %r3;", "u32", 2**32 - 1),
        ("mov.u32 %r1, 0x12345678; bfe.u32 %r2, %r1, 8, 12;", "u32", 0x456),
        ("mov.u32 %r1, 0x33221100; mov.u32 %r3, 0x77665544; prmt.b32 %r2, %r1, %r3, 0x7410;", "u32", 0x77441100),
        # The table of a ? b : c
        ("mov.u32 %r1, 12; mov.u32 %r3, 10; mov.u32 %r4, 5; lop3.b32 %r2, %r1, %r3, %r4, 0xCA;", "u32", 9),
    ],
)
def test_an_instruction(lines, kind, result):
    array = np.zeros(1, {"f64": np.float64, "u32": np.uint32, "u64": np.uint64}[kind])
    register = {"f64": "%fd2", "u32": "%r2", "u64": "%rd2"}[kind]
    run(f"{lines}\nst.{kind} [%rd1], {register};", array)
    assert array[0] == result


@pytest.mark.parametrize(
    ("exchange", "results"),
    [
        ("shfl.sync.bfly.b32 %r2|%p1, %r1, 8, 31, -1;", [n ^ 8 for n in range(32)]),
        # Segments of 16 lanes: the mask of c is 32 - 16, and its low bits are 0 only for up.
        ("shfl.sync.up.b32 %r2, %r1, 1, 4096, -1;", [n if n % 16 == 0 else n - 1 for n in range(32)]),
        ("shfl.sync.down.b32 %r2, %r1, 1, 4127, -1;", [n if n % 16 == 15 else n + 1 for n in range(32)]),
        ("shfl.sync.idx.b32 %r2, %r1, 3, 4127, -1;", [n // 16 * 16 + 3 for n in range(32)]),
        ("vote.sync.ballot.b32 %r2, %p2, 65535;", [0xF000] * 32),
        ("vote.sync.all.pred %p1, %p2, -1; selp.b32 %r2, 1, 0, %p1;", [0] * 32),
        ("vote.sync.any.pred %p1, %p2, -1; selp.b32 %r2, 1, 0, %p1;", [1] * 32),
    ],
)
def test_an_exchange(exchange, results):
    array = np.zeros(32, np.uint32)
    store = "mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r2;"
    run(f"mov.u32 %r1, %tid.x; setp.ge.u32 %p2, %r1, 12;\n{exchange}\n{store}", array, 32)
    assert array.tolist() == results


@pytest.mark.parametrize(
    ("address", "sectors"),
    [
        ("mul.wide.u32 %rd2, %r1, 8; add.s64 %rd3, %rd1, %rd2; st.global.f64 [%rd3], 0d0000000000000000;", 8),
        ("mul.wide.u32 %rd2, %r1, 64; add.s64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r1;", 32),
        ("mov.u64 %rd3, __local_depot0; st.local.f64 [%rd3], 0d0000000000000000;", 8),
        ("mul.wide.u32 %rd2, %r1, 2; add.s64 %rd3, %rd2, __local_depot0; st.local.u8 [%rd3], %r1;", 16),
    ],
)
def test_sectors_that_a_warp_touches(address, sectors):
    """In local memory, the words of all lanes at one offset are neighbours. The last case uses 16 words."""
    done = run(f"mov.u32 %r1, %tid.x;\n{address}", np.zeros(512), 32)
    assert [len(x) for _, touched in done.path for x in touched.values()] == [sectors]


@pytest.mark.parametrize(("numerator", "slow"), [(1.0, 0), (0.0, 1), (1e-300, 1)])
def test_a_division_that_one_lane_finishes_slowly(numerator, slow):
    array = np.array([1.0] * 31 + [numerator])
    lines = "mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 8; add.s64 %rd3, %rd1, %rd2; ld.global.f64 %fd1, [%rd3];"
    done = run(f"{lines}\ndiv.rn.f64 %fd2, %fd1, 0d4000000000000000; st.global.f64 [%rd3], %fd2;", array, 32)
    assert array[30] == 0.5
    assert array[31] == numerator / 2
    assert done.slow == slow


def test_lanes_diverge_and_meet_again():
    """Lane n makes n + 1 steps of a loop, in which odd lanes execute one more instruction."""
    lines = """
        mov.u32 %r1, %tid.x; mov.u32 %r2, 0; and.b32 %r3, %r1, 1; setp.eq.u32 %p1, %r3, 0;
        $L1:
        @%p1 bra $L2;
        xor.b32 %r4, %r1, 1;
        $L2:
        add.s32 %r2, %r2, 1; setp.le.u32 %p2, %r2, %r1;
        @%p2 bra $L1;
        sub.s32 %r5, %r2, 1;"""
    done = run(lines, np.zeros(1), 4)
    assert [done.counts[x] for x in ("xor.b32", "add.s32", "sub.s32")] == [4, 4, 1]


@pytest.mark.parametrize(("registers", "resident", "waves"), [(126, 16, 1), (134, 12, 2)])
def test_waves(registers, resident, waves):
    """65,536 copies by threads are 2,048 warps; an H100 holds 132 cores of resident warps at a time."""
    done = run("div.rn.f64 %fd1, 0d3FF0000000000000, 0d4000000000000000;", np.zeros(1), 32)
    built = {"registers": registers, "stack": 0, "shared": 0, "spilled": 0, "instructions": 1}
    row = gpu_model.modelled(gpu_model.CHIPS["H100"], 65_536, 1, built, done)
    assert (row["warps"], row["waves"], row["bound"]) == (resident, waves, "latency")
    assert row["rounds_per_second"] == pytest.approx(65_536 * 1.755e9 / (waves * row["cycles"]))


@pytest.mark.parametrize(
    ("held", "cycles", "beyond"),
    [((2, 9), 600 + 600 + 33, (3, 2)), ((1, 9), 600 + 600 + 270, (4, 2)), ((1, 1), 600 + 600 + 600, (4, 4))],
)
def test_loads_from_two_caches(held, cycles, beyond):
    """A load, a write to the same sector, a load of the next sector, and the first load again."""
    each = "ld.global.f64 %fd1, [{}]; add.f64 %fd2, %fd1, %fd1;\nbra $L{n}; $L{n}:\n"
    lines = each.format("%rd1", n=1) + "st.global.f64 [%rd1], %fd2;\n"
    done = run(lines + each.format("%rd1+32", n=2) + each.format("%rd1", n=3), np.zeros(8))
    costs = {x: ptx.Cost(0) for block in done.program.kinds for x, *_ in block}
    costs["ld.global.f64"] = ptx.Cost(0, 33)
    assert ptx.timed(done, costs, held, (270, 600)) == (cycles, beyond)
