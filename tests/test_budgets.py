"""How large the project is, and how many files a sweep runs through. No number may grow beyond what was reached."""

import io
import json
import subprocess
import tokenize
from pathlib import Path

from tests.processes import ROOT, python

PRODUCT = "exaul", "experiments", "benchmarks", "examples"
LIMITS = {  # what was reached; lower a number when it falls
    "product lines": 27_645,
    "test lines": 20_854,
    "product tokens": 209_956,
    "test tokens": 203_943,
    "engine and commands, lines": 11_193,
    "engine and commands, files": 58,
    "exaul/kernels, lines": 4_501,
    "exaul/serving, lines": 4_791,
    "exaul/llm, lines": 2_900,
    "experiments, lines": 2_592,
    "benchmarks, lines": 634,
    "files outside docs": 289,  # of the repository, which has no data
    "longest file": 498,
    "path: files of engine and commands": 30,
    "path: files of kernels": 14,
    "path: functions": 507,
}
FOLDERS = [name for name in LIMITS if name.startswith(("exaul/", "experiments", "benchmarks"))]
PATH = """
import json, os, sys, tempfile, threading
from matplotlib.figure import Figure
from exaul.commands.main import main

argv = ["sweep", "--trials", "4", "--horizon", "2000", "--progress", "quiet", "--out"]
folder = tempfile.mkdtemp()
Figure.savefig = lambda figure, *_, **__: figure.draw_without_rendering()  # other libraries write the files
assert main([*argv, f"{folder}/first"]) == 0  # compiles what is not stored
ran, imports = set(), 0

def seen(frame, event, argument):
    global imports
    name = frame.f_code.co_filename
    if "importlib" in name:
        imports += 1
        frame.f_trace_lines = False
        return left
    if not imports and f"{os.sep}exaul{os.sep}" in name:
        ran.add((name, frame.f_code.co_qualname))

def left(frame, event, argument):
    global imports
    imports -= event == "return"
    return left

threading.settrace(seen)
sys.settrace(seen)
status = main([*argv, f"{folder}/second"])
sys.settrace(None)
assert status == 0
print(json.dumps(sorted(ran)))
"""


def files(*folders, suffixes=(".py", ".html", ".txt")):
    """The files of some folders, without caches and results."""
    every = (path for folder in folders for path in sorted((ROOT / folder).rglob("*")))
    return [path for path in every if path.suffix in suffixes and "__pycache__" not in path.parts]


def lines(paths):
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def tokens(paths):
    """Tokens of Python without comments and line breaks, as Python 3.11 counts them: a string is one."""
    names = "COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER", "FSTRING_END"
    skipped = {getattr(tokenize, name, None) for name in names}
    begin, end = (getattr(tokenize, f"FSTRING_{x}", None) for x in ("START", "END"))  # from Python 3.12 on
    count = depth = 0  # of formatted strings
    for path in (path for path in paths if path.suffix == ".py"):
        for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
            depth -= token.type == end
            count += depth == 0 and token.type not in skipped
            depth += token.type == begin
    return count


def measured(home):
    """Every number of LIMITS."""
    product, engine = files(*PRODUCT), files("exaul/engine", "exaul/commands", suffixes=(".py",))
    product += files("docs", suffixes=(".py",))
    ran = json.loads(python(PATH, folder=home).stdout.splitlines()[-1])
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    modules = {Path(name).relative_to(ROOT).parts[1] + name for name, _ in ran if Path(name).is_relative_to(ROOT)}
    return {
        "product lines": lines(product),
        "test lines": lines(files("tests", suffixes=(".py",))),
        "product tokens": tokens(product),
        "test tokens": tokens(files("tests")),
        "engine and commands, lines": lines(engine),
        "engine and commands, files": len(engine),
        **{name: lines(files(name.partition(",")[0])) for name in FOLDERS},
        "files outside docs": sum(not name.startswith("docs/") for name in listed.splitlines()),
        "longest file": max(lines([path]) for path in product if path.suffix == ".py"),
        "path: files of engine and commands": sum(name.startswith(("engine", "commands")) for name in modules),
        "path: files of kernels": sum(name.startswith("kernels") for name in modules),
        "path: functions": len(ran),
    }


def test_nothing_grows_beyond_what_was_reached(tmp_path, capsys):
    found = measured(tmp_path)
    with capsys.disabled():
        print("\n" + "\n".join(f"{name}: {number:,} (limit {LIMITS[name]:,})" for name, number in found.items()))
    assert {name: number for name, number in found.items() if number > LIMITS[name]} == {}
    assert found["path: files of engine and commands"] > 10  # it has seen the path


def test_a_docstring_is_one_token(tmp_path):
    path = tmp_path / "x.py"
    path.write_text('"""One\n\ntwo."""\n\nx = 1  # three\n')
    assert tokens([path]) == 4
