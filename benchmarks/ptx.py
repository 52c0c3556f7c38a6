"""An interpreter of PTX, the assembler language of NVIDIA devices: results and counts without a device.

It runs a kernel that numba-cuda compiled on the lanes of one warp, block by block. So the device code can be
compared with the CPU backends, and its instructions counted and timed. Any instruction that it does not know raises
NotImplementedError.

A basic block becomes a Python function ``block(R, M)`` of a lane's registers and the memory. It returns the next
block, and a request if lanes exchange values (shfl, vote, bar).
"""

import math
import re
import struct
from collections import Counter, OrderedDict
from typing import Any, NamedTuple

import numpy as np

MASK = {width: (1 << width) - 1 for width in (8, 16, 32, 64)}
LOCAL, SHARED = 1 << 40, 1 << 41  # first addresses of these spaces, above all arrays
_FORMAT = {
    "f64": "d",
    "f32": "f",
    "u64": "Q",
    "s64": "q",
    "b64": "Q",
    "u32": "I",
    "s32": "i",
    "b32": "I",
    "u16": "H",
    "s16": "h",
    "b16": "H",
    "u8": "B",
    "s8": "b",
    "b8": "B",
}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def bits(x: float) -> int:
    """Return the 64 bits of a float64."""
    return int(struct.unpack("<Q", struct.pack("<d", x))[0])


def real(x: int) -> float:
    """Return the float64 of 64 bits."""
    return float(struct.unpack("<d", struct.pack("<Q", x & MASK[64]))[0])


def signed(x: int, width: int) -> int:
    """Return bits as a two's-complement integer."""
    return x - (1 << width) if x >> (width - 1) & 1 else x


def single(x: int) -> float:
    """Return the float32 of 32 bits."""
    return float(struct.unpack("<f", struct.pack("<I", x & MASK[32]))[0])


def single_bits(x: float) -> int:
    """Return the 32 bits of a float32."""
    return int(struct.unpack("<I", struct.pack("<f", x))[0])


def fma(x: float, y: float, z: float) -> float:
    """Return ``x y + z``, rounded once, unless a part of x y is not a float64."""
    # Dekker: halves of 26 bits, whose products are exact.
    a, b = x * 134217729.0, y * 134217729.0
    a, b = a - (a - x), b - (b - y)
    product = x * y
    error = ((a * b - product) + a * (y - b) + (x - a) * b) + (x - a) * (y - b)
    return math.fsum((product, error, z)) if math.isfinite(error) else product + z


def reciprocal(x: float) -> float:
    """Return the approximation of MUFU.RCP64H, which reads and writes the upper 32 bits."""
    x = real(bits(x) & ~MASK[32])
    return real(bits(1 / x) & ~MASK[32]) if abs(x) >= 2.0**-1022 else math.copysign(math.inf, x)


def quotient(x: float, y: float) -> tuple[float, bool]:
    """Return ``x / y``, and whether the machine code branches to its slow path: see ``cost`` in gpu_model.py."""
    with np.errstate(all="ignore"):
        result = float(np.float64(x) / y)
    fast = abs(x) >= 2.0**-969 and abs(y) < 2.0**1017 and 2.0**-1022 <= abs(result) < 2.0**1017
    return result, not fast


class WarpMemory:
    """Arrays, local and shared memory by address, as the lanes of one warp see them."""

    def __init__(self) -> None:
        self.arrays: list[tuple[int, int, memoryview]] = []
        self.next = 1 << 20
        self.spaces: dict[int, bytearray] = {}  # state spaces: local memory by lane, shared under -1
        self.params: list[int] = []
        # What the instructions of one issue of a block touch, once for all lanes of a warp:
        self.sectors: dict[int, set[int]] = {}  # of 32 bytes in global and local memory, by instruction
        self.slow: set[int] = set()  # divisions that take the slow path

    def place(self, array: np.ndarray) -> int:
        """Assign an address to an array, which kernels then read and write in place."""
        start, view = self.next, memoryview(array.data).cast("B") if array.size else memoryview(bytearray(8))
        self.arrays.append((start, start + len(view), view))
        self.next = start + (len(view) // 256 + 2) * 256  # aligned; the gap turns overruns into errors
        return start

    def at(self, address: int, size: int, lane: int, instruction: int) -> tuple[Any, int]:
        """Return the buffer of an address and the offset in it, and note the sectors that are touched."""
        if address >= SHARED:
            return self.spaces[-1], address - SHARED
        sectors = self.sectors.setdefault(instruction, set())
        if address >= LOCAL:
            # Words of 4 bytes are interleaved: those of all lanes at one offset are four sectors.
            sectors.update(4 * x + lane // 8 for x in range(address // 4, (address + size - 1) // 4 + 1))
            return self.spaces[lane], address - LOCAL
        for start, end, view in self.arrays:
            if start <= address < end:
                sectors.update(range(address // 32, (address + size - 1) // 32 + 1))
                return view, address - start
        raise IndexError(f"no array at {address}")


class Issued(NamedTuple):
    """An instruction."""

    operation: str
    number: int  # if it accesses memory or divides, else 0
    written: list[str]  # registers
    read: list[str]


class PtxProgram:
    """A kernel, translated to one Python function per basic block."""

    def __init__(self, text: str) -> None:
        body = text[text.index(".entry") :]
        body = body[: body.index("\n}")]
        self.params = re.findall(r"\.param \.(\w+) (\w+)", body[: body.index("{")])
        self.numbers = {name: n for n, (_, name) in enumerate(self.params)}
        self.symbols: dict[str, int] = {}
        at = 0
        for align, name, size in re.findall(r"\.shared \.align (\d+) \.b8 (\w+)\[(\d+)\]", text):
            at = -(-at // int(align)) * int(align)
            self.symbols[name], at = SHARED + at, at + int(size)
        self.shared = at
        found = re.search(r"\.local \.align \d+ \.b8\s+(\w+)\[(\d+)\]", body)
        self.local = int(found[2]) if found else 0
        if found:
            self.symbols[found[1]] = LOCAL
        self.numbered = 0  # instructions that access memory or divide
        self.blocks: list[str] = []
        self.kinds: list[list[Issued]] = []
        self._translate(body[body.index("{") + 1 :])

    def _translate(self, body: str) -> None:
        labels: dict[str, int] = {}
        groups: list[list[str]] = [[]]
        following: list[list[int]] = []  # blocks that may follow each block
        for line in re.sub(r"//.*", "", body).replace("{ ", "{").splitlines():
            for part in re.split(r"(?<=[;:])\s*", line.strip()):
                words = part.strip()
                label = re.fullmatch(r"(\$[\w$]+):", words)
                if label:
                    groups.append([])
                    labels[label[1]] = len(groups) - 1  # a label starts a block
                elif words.endswith(";") and not words.startswith("."):
                    groups[-1].append(words[:-1])
                    if re.match(r"(@!?%\w+ )?(bra|ret)|(shfl|vote|bar)\.", words):
                        groups.append([])  # a branch or an exchange between lanes ends a block
        for n, group in enumerate(groups):
            lines, kinds, targets = [], [], [n + 1]
            end = [f"return {n + 1}, None"]
            for text in group:
                match = re.match(r"(?:@(!?)(%\w+)\s+)?([\w.]+)\s*(.*)", text)
                assert match, text
                negated, guard, operation, rest = match.groups()
                written, read = registers_of(operation, rest)
                condition = f"if {'not ' if negated else ''}R[{guard!r}]: " if guard else ""
                numbered = self.numbered
                if operation.startswith("bra"):
                    targets = [labels[rest.strip()], *targets] if guard else [labels[rest.strip()]]
                    lines.append(f"{condition}return {targets[0]}, None")
                elif operation == "ret":
                    targets = [len(groups), *targets] if guard else [len(groups)]
                    lines.append(f"{condition}return {len(groups)}, None")
                elif operation.split(".")[0] in ("shfl", "vote", "bar"):
                    end = [f"return {n + 1}, {self._together(operation, rest)}"]
                else:
                    lines.extend(condition + x for x in self._one(operation, rest))
                number = self.numbered if self.numbered > numbered else 0
                kinds.append(Issued(operation, number, written, read + ([guard] if guard else [])))
            self.blocks.append("def block(R, M):\n    " + "\n    ".join(lines + end))
            self.kinds.append(kinds)
            following.append(targets)
        self.meets = postdominators(following)
        self.code = []
        for text in self.blocks:
            # The generated code calls the helpers of this module; each block gets its own namespace.
            space: dict[str, Any] = dict(globals())
            exec(compile(text, "ptx", "exec"), space)
            self.code.append(space["block"])

    def _value(self, x: str) -> str:
        x = x.strip()
        if x.startswith("0d"):
            return repr(real(int(x[2:], 16))) if math.isfinite(real(int(x[2:], 16))) else f"real({int(x[2:], 16)})"
        if x.startswith("0f"):
            return (
                repr(single(int(x[2:], 16)))
                if math.isfinite(single(int(x[2:], 16)))
                else f"single({int(x[2:], 16)})"
            )
        if re.fullmatch(r"-?(0x)?[0-9A-Fa-f]+", x):
            return str(int(x, 0) & MASK[64])
        if x in self.symbols:
            return str(self.symbols[x])
        return f"R[{x!r}]"

    def _together(self, operation: str, rest: str) -> str:
        parts = [x.strip() for x in rest.split(",")]
        if operation.startswith("bar"):
            return "('bar', '', 0)"
        if operation.startswith("vote"):
            return f"('vote.{operation.split('.')[2]}', {parts[0]!r}, {', '.join(map(self._value, parts[1:]))})"
        values = ", ".join(map(self._value, parts[1:4]))
        return f"({operation.split('.')[2]!r}, {parts[0].split('|')[0]!r}, {values})"

    def _number(self) -> int:
        self.numbered += 1
        return self.numbered

    def _one(self, operation: str, rest: str) -> list[str]:
        parts = [x.strip() for x in re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*", rest)]
        op, *kinds = operation.split(".")
        last = kinds[-1]
        width = int(last[1:]) if last[1:].isdigit() else 32
        to, v = f"R[{parts[0]!r}]", [self._value(x) for x in parts[1:] if not x.startswith(("[", "{"))]
        real_kind = last in ("f64", "f32")
        mask = MASK[width]
        # Registers hold Python integers of unlimited width: mask operands to the width of the instruction, and read
        # them with a sign if its type is signed.
        s = (
            [f"signed({x} & {mask}, {width})" for x in v]
            if last.startswith("s")
            else [f"({x} & {mask})" for x in v]
        )
        # float32 is computed in float64 and rounded once more, which is exact for +, - and *.
        rounded = "float(np.float32({}))" if last == "f32" else "{}"
        if op in ("ld", "ldu", "st", "atom", "red"):
            return self._memory(op, kinds, parts)
        if op == "cvta":
            return [f"{to} = {v[0]}"]
        if op == "mov":
            if parts[0].startswith("{"):
                low, high = (f"R[{x.strip()!r}]" for x in parts[0][1:-1].split(","))
                source = self._value(parts[1])
                x = f"(bits({source}) if isinstance({source}, float) else {source})"
                return [f"T = {x}", f"{low} = T & {MASK[width // 2]}", f"{high} = T >> {width // 2}"]
            if parts[1].startswith("{"):
                low, high = (self._value(x) for x in parts[1][1:-1].split(","))
                half = width // 2
                x = f"({low} & {MASK[half]}) | ({high} & {MASK[half]}) << {half}"
                return [f"{to} = real({x})" if "fd" in parts[0] else f"{to} = {x}"]
            if last == "b64" and ("fd" in parts[0]) != ("fd" in parts[1]) and not parts[1].startswith("0d"):
                return [f"{to} = {'real' if 'fd' in parts[0] else 'bits'}({v[0]})"]
            if last == "b32" and parts[0].startswith("%f") != parts[1].startswith("%f"):
                return [f"{to} = {'single' if parts[0].startswith('%f') else 'single_bits'}({v[0]})"]
            if last in ("b64", "u64", "s64", "b32", "u32", "s32", "b16", "u16", "s16", "f64", "f32", "pred"):
                return [f"{to} = {v[0]}"]
        if op == "setp":
            name = kinds[0]
            # Comparisons that end in u hold for NaN, too.
            if real_kind and name in ("leu", "geu", "ltu", "gtu", "neu", "equ"):
                unordered = f"{v[0]} != {v[0]} or {v[1]} != {v[1]}"
                return [f"{to} = ({v[0]} {_COMPARE[name[:2]]} {v[1]}) or {unordered}"]
            if real_kind:
                return [f"{to} = {v[0]} {_COMPARE[name]} {v[1]}"]
            return [f"{to} = {s[0]} {_COMPARE[name]} {s[1]}"]
        if op == "selp":
            return [f"{to} = {v[0]} if {v[2]} else {v[1]}"]
        if last == "pred":
            form = {"and": "{} and {}", "or": "{} or {}", "xor": "{} != {}", "not": "not {}"}[op]
            return [f"{to} = {form.format(*v)}"]
        if real_kind:
            if op in ("add", "sub", "mul"):
                sign = {"add": "+", "sub": "-", "mul": "*"}[op]
                return [f"{to} = {rounded.format(f'{v[0]} {sign} {v[1]}')}"]
            if op == "fma":
                return [f"{to} = {rounded.format(f'fma({v[0]}, {v[1]}, {v[2]})')}"]
            if op == "rcp" and kinds[0] == "approx":
                return [f"{to} = reciprocal({v[0]})"]
            if op in ("div", "rcp"):
                operands = ", ".join(["1.0", *v][-2:])
                return [f"{to}, S = quotient({operands})", f"S and M.slow.add({self._number()})"]
            if op in ("min", "max"):
                return [f"{to} = {op}({v[0]}, {v[1]})"]
            if op == "abs":
                return [f"{to} = abs({v[0]})"]
            if op == "neg":
                return [f"{to} = -{v[0]}"]
        if op == "cvt":
            return self._convert(to, kinds, v)
        if op in ("add", "sub", "and", "or", "xor"):
            sign = {"add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^"}[op]
            return [f"{to} = ({v[0]} {sign} {v[1]}) & {mask}"]
        if op == "mul" and kinds[0] == "lo":
            return [f"{to} = ({v[0]} * {v[1]}) & {mask}"]
        if op == "mul" and kinds[0] == "hi":
            return [f"{to} = (({s[0]} * {s[1]}) >> {width}) & {mask}"]
        if op in ("mul", "mad") and kinds[0] == "wide":
            more = f" + {v[2]}" if op == "mad" else ""
            return [f"{to} = ({s[0]} * {s[1]}{more}) & {MASK[64]}"]
        if op == "mad":
            return [f"{to} = ({v[0]} * {v[1]} + {v[2]}) & {mask}"]
        if op == "shl":
            return [f"{to} = ({v[0]} << {v[1]}) & {mask} if {v[1]} < {width} else 0"]
        if op == "shr":
            return [f"{to} = ({s[0]} >> min({v[1]}, {width})) & {mask}"]
        if op == "shf":  # funnel shift left of {second, first} by the third modulo 32
            return [f"T = {v[2]} & 31", f"{to} = ((({v[1]} << 32 | {v[0]}) << T) >> 32) & {MASK[32]}"]
        if op == "not":
            return [f"{to} = ~{v[0]} & {mask}"]
        if op == "neg":
            return [f"{to} = -{v[0]} & {mask}"]
        if op == "popc":
            return [f"{to} = int({v[0]} & {mask}).bit_count()"]
        if op in ("min", "max"):
            return [f"{to} = {op}({s[0]}, {s[1]}) & {mask}"]
        if op == "abs":
            return [f"{to} = abs({s[0]}) & {mask}"]
        if op == "div":
            return [f"{to} = divided({s[0]}, {s[1]}) & {mask}"]
        if op == "rem":
            return [f"{to} = ({s[0]} - {s[1]} * divided({s[0]}, {s[1]})) & {mask}"]
        if op == "bfe":  # a field of bits, without a sign
            return [f"{to} = ({s[0]} >> {v[1]}) & (1 << {v[2]}) - 1"]
        if op == "prmt":  # bytes of {second, first}, chosen by four hexadecimal digits
            choice = f"({v[1]} << 32 | {v[0]} & {MASK[32]}) >> 8 * ({v[2]} >> 4 * n & 7) & 255"
            return [f"{to} = sum(({choice}) << 8 * n for n in range(4))"]
        if op == "lop3":  # a table of the eight combinations of three bits
            terms = (
                " & ".join(x if n & bit else f"~{x}" for x, bit in zip(v[:3], (4, 2, 1), strict=True))
                for n in range(8)
                if int(v[3]) >> n & 1
            )
            return [f"{to} = ({' | '.join(terms) or 0}) & {mask}"]
        if op == "bfi":  # insert the first into the second at a bit
            field = f"((1 << {v[3]}) - 1 << {v[2]})"
            return [f"{to} = ({v[1]} & ~{field} | {v[0]} << {v[2]} & {field}) & {mask}"]
        raise NotImplementedError(operation)

    def _convert(self, to: str, kinds: list[str], v: list[str]) -> list[str]:
        into, source = kinds[-2:]
        width = {"64": 64, "32": 32, "16": 16, "u8": 8, "s8": 8}
        wide_in, wide_out = width[source[-2:]], width[into[-2:]]
        x = (
            f"signed({v[0]} & {(1 << wide_in) - 1}, {wide_in})"
            if source[0] == "s"
            else f"({v[0]} & {(1 << wide_in) - 1})"
        )
        if source[0] == "f" and into[0] == "f":
            return [f"{to} = float(np.float32({v[0]}))" if into == "f32" else f"{to} = {v[0]}"]
        if into[0] == "f":
            return [f"{to} = float({x})"]
        if source[0] == "f":
            how = {"rzi": "math.trunc", "rmi": "math.floor", "rni": "round"}[kinds[0]]
            return [f"{to} = {how}({v[0]}) & {(1 << wide_out) - 1}"]
        return [f"{to} = {x} & {(1 << wide_out) - 1}"]

    def _memory(self, op: str, kinds: list[str], parts: list[str]) -> list[str]:
        form, size = _FORMAT[kinds[-1]], struct.calcsize("<" + _FORMAT[kinds[-1]])
        place = next(x for x in parts if x.startswith("["))[1:-1]
        base, _, offset = place.partition("+")
        offset = offset or "0"
        if "param" in kinds:
            if base not in self.numbers:
                raise NotImplementedError("a call")
            return [f"R[{parts[0]!r}] = M.params[{self.numbers[base]}]"]
        address = f"{self._value(base)} + {int(offset, 0)}"
        values = next(x for x in parts if not x.startswith("["))
        registers = [x.strip() for x in values.strip("{}").split(",")]
        many = len(registers)
        lines = [f"B, A = M.at({address}, {size * many}, R['lane'], {self._number()})"]
        if op in ("ld", "ldu"):
            lines.append(f"T = struct.unpack_from('<{many}{form}', B, A)")
            for n, name in enumerate(registers):
                mask = "" if form in "df" else f" & {MASK[64 if '%rd' in name else 32]}"
                lines.append(f"R[{name!r}] = T[{n}]{mask}")
            return lines
        if op == "st":
            form = form if form in "df" else form.upper()
            cast = "" if form in "df" else f" & {MASK[8 * size]}"
            inner = ", ".join(f"{self._value(x)}{cast}" for x in registers)
            return [*lines, f"struct.pack_into('<{many}{form}', B, A, {inner})"]
        change = {"or": "T | {} & 0xFFFFFFFF", "add": "T + {}"}[kinds[-2]]
        value = self._value(parts[2] if op == "atom" else parts[1])
        lines.append(f"T = struct.unpack_from('<{form}', B, A)[0]")
        lines.append(f"struct.pack_into('<{form}', B, A, {change.format(value)})")
        return [*lines, f"R[{parts[0]!r}] = T"] if op == "atom" else lines


def postdominators(following: list[list[int]]) -> list[int]:
    """Return the first block that every path from each block passes; the end has the number after the last."""
    end = len(following)
    every = (2 << end) - 1
    passed = [every] * end + [1 << end]  # bits: the blocks on every path from a block to the end
    changed = True
    while changed:
        changed = False
        for n in range(end - 1, -1, -1):
            common = every
            for m in following[n]:
                common &= passed[m]
            changed |= passed[n] != common | 1 << n
            passed[n] = common | 1 << n
    # The blocks behind it on these paths pass fewer: the first one passes all others.
    later = [[m for m in range(end + 1) if m != n and passed[n] >> m & 1] for n in range(end)]
    return [max(each, key=lambda m: passed[m].bit_count(), default=end) for each in later]


def divided(x: int, y: int) -> int:
    """Return an integer quotient, rounded towards 0."""
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def registers_of(operation: str, rest: str) -> tuple[list[str], list[str]]:
    """Return the registers that an instruction writes, and those that it reads."""
    names = re.findall(r"%\w+", rest)
    if operation.split(".")[0] in ("st", "red", "bra", "ret", "bar"):
        return [], names
    written = re.findall(r"%\w+", rest[: rest.index("}") + 1]) if rest.startswith("{") else names[:1]
    return written, names[len(written) :]


class Cost(NamedTuple):
    """What an instruction costs a warp, in cycles."""

    slots: float  # in which its scheduler issues nothing else
    latency: float = 0.0  # until its result can be read
    doubles: float = 0.0  # of a float64 pipe
    waits: bool = False  # whether the warp issues nothing until the result can be read


Timed = tuple[Issued, Cost]


def scheduled(block: list[Timed]) -> list[Timed]:
    """Order the instructions of a basic block as ptxas does: earliest start first, then the longest chain."""
    before: list[dict[int, float]] = [{} for _ in block]  # predecessors of an instruction, and the wait for each
    writer: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    loads: list[int] = []
    store: int | None = None
    for n, ((operation, _, to, of), _) in enumerate(block):
        op = operation.split(".")[0]
        for x in of:
            if x in writer:
                before[n][writer[x]] = block[writer[x]][1].latency
            readers.setdefault(x, []).append(n)
        for x in to:
            # No write moves before the reads of the old value.
            for m in [*readers.pop(x, []), *([writer[x]] if x in writer else [])]:
                if m != n:
                    before[n].setdefault(m, 0.0)
            writer[x] = n
        # No load moves before a store, and no store before any memory access.
        if op in ("ld", "st", "atom", "red") and "param" not in operation:
            if store is not None:
                before[n].setdefault(store, 0.0)
            if op == "ld":
                loads.append(n)
            else:
                before[n] |= {m: before[n].get(m, 0.0) for m in loads}
                loads, store = [], n
        elif op in ("bra", "ret", "shfl", "vote", "bar"):
            before[n] |= {m: before[n].get(m, 0.0) for m in range(n)}
    after = [0.0] * len(block)  # length of the longest chain behind an instruction
    for n in range(len(block) - 1, -1, -1):
        for m in before[n]:
            after[m] = max(after[m], after[n] + block[m][1].latency)
    start: dict[int, float] = {}
    order, left, now = [], list(range(len(block))), 0.0
    while left:
        able = [n for n in left if all(m in start for m in before[n])]
        begins = {n: max([now, *(start[m] + wait for m, wait in before[n].items())]) for n in able}
        n = min(able, key=lambda n: (begins[n], -after[n], n))
        start[n] = begins[n]
        now = begins[n] + (block[n][1].latency if block[n][1].waits else block[n][1].slots)
        order.append(block[n])
        left.remove(n)
    return order


class ExecutionCounts(NamedTuple):
    """What one warp executed; diverged lanes reconverge where all their paths meet."""

    program: PtxProgram
    path: list[tuple[int, dict[int, set[int]]]]  # issued blocks, and the sectors that their instructions touched
    counts: Counter[str]  # issues by instruction
    slow: int  # divisions of which a lane takes the slow path


def run(program: PtxProgram, memory: WarpMemory, params: list[int], lanes: int, block: int) -> ExecutionCounts:
    """Run one thread block of at most one warp."""
    memory.params = params
    memory.spaces = {lane: bytearray(program.local) for lane in range(lanes)} | {-1: bytearray(program.shared)}
    path: list[tuple[int, dict[int, set[int]]]] = []
    slow = 0
    special = {"%ctaid.x": block, "%ntid.x": lanes, "WARP_SZ": 32, "%SPL": LOCAL, "%SP": LOCAL}
    registers: list[dict[str, Any]] = [
        special | {"lane": lane, "%tid.x": lane, "%laneid": lane} for lane in range(lanes)
    ]

    def go(active: list[int], here: int, until: int) -> None:
        nonlocal slow
        while here != until:
            ran, waits = program.code[here], {}
            branches: dict[int, list[int]] = {}
            for lane in active:
                after, wait = ran(registers[lane], memory)
                branches.setdefault(after, []).append(lane)
                if wait is not None:
                    waits[lane] = wait
            if waits:
                exchange(waits, registers)
            path.append((here, memory.sectors))
            slow += len(memory.slow)
            memory.sectors, memory.slow = {}, set()
            if len(branches) > 1:
                for after in sorted(branches):
                    go(branches[after], after, program.meets[here])
                here = program.meets[here]
            else:
                here = next(iter(branches))

    go(list(range(lanes)), 0, len(program.code))
    counts = Counter[str]()
    for n, many in Counter(here for here, _ in path).items():
        for issued in program.kinds[n]:
            counts[issued.operation] += many
    return ExecutionCounts(program, path, counts, slow)


def timed(
    done: ExecutionCounts, costs: dict[str, Cost], held: tuple[int, int], reach: tuple[float, float]
) -> tuple[float, tuple[int, int]]:
    """Return the cycles that a warp takes alone, and how many sectors it moves beyond each of two caches.

    An instruction issues when its operands are ready. The caches hold the last ``held`` sectors. The first passes
    every write on, the second writes a sector when it drops it. A load of a sector that the first, or either, does
    not hold takes ``reach`` cycles.
    """
    blocks = [scheduled([(x, costs[x.operation]) for x in kinds]) for kinds in done.program.kinds]
    ready: dict[str, float] = {}
    now = doubles = 0.0  # the next cycle of the warp, and of the float64 pipe
    first: OrderedDict[int, None] = OrderedDict()
    second: OrderedDict[int, bool] = OrderedDict()  # whether it was written
    beyond = [0, 0]
    for here, sectors in done.path:
        for (operation, number, to, of), each in blocks[here]:
            now = max([now, *(ready.get(x, 0.0) for x in of)])
            latency = each.latency
            reads, writes = not operation.startswith("st"), not operation.startswith("ld")
            for sector in sectors.get(number, ()):
                if writes or sector not in first:
                    beyond[0] += reads + writes
                    if reads:
                        beyond[1] += sector not in second
                        latency = max(latency, reach[sector not in second])
                    second[sector] = writes or second.get(sector, False)
                    second.move_to_end(sector)
                first[sector] = None
                first.move_to_end(sector)
            while len(first) > held[0]:
                first.popitem(last=False)
            while len(second) > held[1]:
                beyond[1] += second.popitem(last=False)[1]
            if each.doubles:
                now = max(now, doubles)
                doubles = now + each.doubles
            for x in to:
                ready[x] = now + latency
            now += each.latency if each.waits else each.slots
    return now, (beyond[0], beyond[1])


def exchange(waits: dict[int, Any], registers: list[dict[str, Any]]) -> None:
    """Execute an exchange of some lanes: bar, vote or shfl."""
    for lane, (mode, to, x, *operands) in waits.items():
        if mode.startswith("vote"):
            voters = [n for n in waits if operands[0] >> n & 1]
            votes = [n for n in voters if waits[n][2]]
            found = {"ballot": sum(1 << n for n in votes), "any": bool(votes), "all": votes == voters}
            registers[lane][to] = found[mode[5:]]
        elif mode != "bar":
            # Lanes exchange within segments; c has a mask that selects them, and the last lane in its low bits.
            b, c = operands[0] & 31, operands[1]
            segment = c >> 8 & 31
            last = lane & segment | c & 31 & ~segment
            other = {"bfly": lane ^ b, "up": lane - b, "idx": lane & segment | b & ~segment, "down": lane + b}[mode]
            inside = other >= last if mode == "up" else other <= last
            registers[lane][to] = waits[other][2] if inside and other in waits else x
