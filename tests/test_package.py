"""What is released: the source distribution, the wheel, and what runs where the wheel is installed.

And what needs less: ``Abstainer`` and its journal run with numpy alone, the service with the libraries that serve.
"""

import email
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest

import exaul
from exaul import Abstainer
from tests.processes import ENTRY, python, service, variables

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NAME = f"exaul-{exaul.__version__}"
DATA = (  # files that are not Python
    "exaul/engine/logs/profiles.csv",
    "exaul/llm/roles/judge.txt",
    "exaul/py.typed",
    "exaul/serving/http/page.html",
)
LINKS = "engine", "kernels"


def files():
    """The files of the checkout, as an archive of it has them, without the two links."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    paths = [Path(name) for name in done.stdout.split("\0") if name]
    return [path for path in paths if (ROOT / path).is_file()]


def output(command, folder, env=None):
    """Return what a program prints."""
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def build(source, out, *flags):
    output([sys.executable, "-m", "hatchling", "build", *flags, "-d", str(out)], source)
    return out


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """Both distributions, built in a checkout with its links, in which tests have run."""
    pytest.importorskip("hatchling")
    source = tmp_path_factory.mktemp("source")
    for path in files():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, source / path)
    for link in LINKS:
        (source / link).symlink_to(Path("exaul") / link)
    for name in ("exaul/__pycache__/x.pyc", "exaul/engine/__pycache__/x.pyc", ".pytest_cache/x", "uv.lock"):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text("x")
    return build(source, tmp_path_factory.mktemp("released"))


@pytest.fixture(scope="module")
def wheel(released):
    return released / f"{NAME}-py3-none-any.whl"


def test_the_wheel_has_the_package_and_nothing_else_and_says_what_it_is(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        links = [each.filename for each in archive.infolist() if (each.external_attr >> 16) & 0o170000 == 0o120000]
        info = f"{NAME}.dist-info"
        fields = email.message_from_bytes(archive.read(f"{info}/METADATA"))
        scripts = archive.read(f"{info}/entry_points.txt").decode()
    assert links == []
    records = {f"{info}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")}
    assert names == {path.as_posix() for path in files() if path.parts[0] == "exaul"} | records
    assert names >= set(DATA)
    assert (fields["Name"], fields["Version"]) == ("exaul", exaul.__version__)
    assert (fields["Author"], fields["License-Expression"]) == ("The exaul developers", "Apache-2.0")
    assert fields["Requires-Python"] == ">=3.11"
    assert fields["Author-email"] is fields.get_all("Project-URL") is None  # there is no public address
    assert set(fields.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
    required = [each for each in fields.get_all("Requires-Dist") if "extra ==" not in each]
    assert len(required) == len(PROJECT["dependencies"])
    assert fields.get_payload().startswith("# exaul")
    assert "exaul = exaul.commands.main:entry" in scripts


def test_the_source_distribution_has_the_checkout_and_builds_the_same_wheel(released, wheel, tmp_path):
    with tarfile.open(released / f"{NAME}.tar.gz") as archive:
        members = archive.getmembers()
        archive.extractall(tmp_path, filter="data")
    assert all(member.isfile() for member in members)  # and no link
    names = {member.name.removeprefix(f"{NAME}/") for member in members}
    for_developers = {path for path in files() if path.parts[0].startswith(".")}
    assert names == {path.as_posix() for path in set(files()) - for_developers} | {"PKG-INFO", ".gitignore"}

    build(tmp_path / NAME, tmp_path / "again", "-t", "wheel")
    assert (tmp_path / "again" / wheel.name).read_bytes() == wheel.read_bytes()


@pytest.mark.slow
def test_a_type_checker_accepts_the_documented_calls_and_reads_tuples(tmp_path):
    pytest.importorskip("mypy")
    program = "from exaul import Sweep\nsweep = Sweep(logs='a', learners=['exaul'], alphas=[0.1], flips=[0, 0.1])\n"
    (tmp_path / "program.py").write_text(program + "Sweep(alphas=0.1).alphas[0] + 1\nSweep(out=3)\n")
    mypy = [sys.executable, "-m", "mypy", str(tmp_path / "program.py")]
    done = subprocess.run(mypy, cwd=ROOT, capture_output=True, text=True, check=False)
    assert re.findall(r":(\d+): error", done.stdout) == ["4"], done.stdout


def test_a_type_checker_knows_each_public_name_and_none_is_imported_before_its_use():
    text = (ROOT / "exaul" / "__init__.py").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^    from \S+ import (\w+) as \1$", text, re.MULTILINE)) == sorted(exaul.__all__)
    code = "import sys, exaul; print(*(x for x in sys.modules if x.startswith('exaul.') or x in ('numpy', 'jax')))"
    assert output([sys.executable, "-c", code], ROOT) == "\n"
    code = "from exaul import Adaptive, Oblivious, RegretBounds; import sys; print('jax' in sys.modules)"
    assert output([sys.executable, "-c", code], ROOT) == "False\n"


def test_the_citation_is_of_this_version():
    """Its form was checked with cffconvert; this finds what a release changes."""
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {exaul.__version__}\n" in text
    assert f"\nlicense: {PROJECT['license']}\n" in text
    assert f"version = {{{exaul.__version__}}}" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^  - (\w[\w ]+)$", text, re.MULTILINE) == PROJECT["keywords"]


def test_a_script_beside_a_clone_imports_the_package(tmp_path):
    """The clone is a folder called ``exaul`` without ``__init__.py``, before the installed packages on the path."""
    (tmp_path / "exaul").symlink_to(ROOT)
    script = tmp_path / "script.py"
    script.write_text("import exaul\nprint(exaul.__file__, exaul.Sweep.__name__)\n")
    file, name = output([sys.executable, script], tmp_path).split()
    installed = Path(sysconfig.get_paths()["purelib"])
    assert name == "Sweep"
    assert Path(file).parent in (ROOT / "exaul", installed / "exaul")


def interpreter(version):
    """Return the path of a Python that runs; skip the test if there is none on the path or in pyenv."""
    name = f"python{version}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(name), *sorted(pyenv.glob(f"{version}.*/bin/{name}"))]
    for path in filter(None, candidates):
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:  # the names of pyenv on the path may be of a Python that is not chosen
            return str(path)
    pytest.skip(f"no Python {version}")


class Environment:
    """An empty environment outside the checkout, and what is installed there."""

    def __init__(self, folder, python):
        self.uv = os.environ.get("UV") or shutil.which("uv") or pytest.skip("uv is not installed")
        self.folder, self.programs = folder, folder / "env" / "bin"
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        self.env = kept | {"JAX_PLATFORMS": "cpu"}
        output([self.uv, "venv", "-q", "--python", python, folder / "env"], folder, self.env)

    def install(self, *packages):
        """Install packages; skip the test if the registry cannot be reached."""
        command = [self.uv, "pip", "install", "-q", "--python", self.programs / "python", *packages]
        done = subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False)
        if re.search("Failed to fetch|error sending request|Failed to download|network was disabled", done.stderr):
            pytest.skip(f"the registry cannot be reached: {done.stderr.splitlines()[0]}")
        assert done.returncode == 0, done.stderr

    def run(self, program, *argv):
        """Return what an installed program prints."""
        return output([self.programs / program, *argv], self.folder, self.env)

    def check_serve(self, state):
        """Start the service, ask for one decision, and end it."""
        command = [self.programs / "exaul", "serve", "--state", state, "--port", "0"]
        with service(command, self.folder, self.env) as ask:
            assert set(ask("/v1/decide", {"score": 0.9})) >= {"id", "answer", "probability"}
            assert b"<html" in ask("/")
        assert "same decisions: yes" in self.run("exaul", "journal", "verify", state)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_the_wheel_runs_where_it_is_installed(version, wheel, tmp_path):
    """First the small installation, by the commands of docs/online.md, with a wheel in the place of the clone."""
    assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]
    environment = Environment(tmp_path, interpreter(version))
    environment.install("--no-deps", wheel)
    environment.install("numpy", "numba")
    code = "from exaul import Abstainer; a = Abstainer(seed=1); print(a.decide(0.9, id='x').probability)"
    assert float(environment.run("python", "-c", code)) == Abstainer(seed=1).decide(0.9, id="x").probability
    environment.install("fastapi", "uvicorn", "prometheus-client", "httpx2")
    environment.check_serve("small.sqlite")
    environment.install(f"{wheel}[serve]")
    assert str(tmp_path / "env") in environment.run("python", "-c", "import exaul; print(exaul.__file__)")
    flags = ["--trials", "2", "--horizon", "500", "--arms", "20", "--out", "results"]
    assert "aci-rank" in environment.run("exaul", "sweep", *flags)
    assert (tmp_path / "results" / "manifest.json").exists()
    environment.check_serve("state.sqlite")


SMALL = ("numpy",)
SERVING = "fastapi", "uvicorn", "prometheus-client", "httpx2"
HIDE = """
import importlib.abc, json, sys
HIDDEN = set(json.loads(sys.argv.pop(1)))
class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
"""
USE = r"""
from exaul import Abstainer, Abstainers, BadInput
learners = "aci-rank", "exaul"
from pathlib import Path
Path("log.csv").write_text("score,correct\n" + "0.9,1\n0.2,0\n" * 50)
abstainer = Abstainer(alpha=0.1, warm_start="log.csv")
assert abstainer.started.endswith("(log: 100 rows, 50.0% wrong)")
assert abstainer.decide(0.9).answer and not abstainer.decide(0.2).answer
for text, sentence in (
    ("score,correct\n0.9\n", "log.csv, row 1: 1 cells found; the header has 2"),
    ("score\n0.9\n", "log.csv: no column error or correct"),
    ("score,correct\n9,1\n", "log.csv, row 1: score is '9'"),
    ("", "log.csv: no column error or correct"),
    ("score,correct\n", "log.csv: no row has both score and correct"),
):
    Path("log.csv").write_text(text)
    try:
        Abstainer(alpha=0.1, warm_start="log.csv")
    except BadInput as error:
        assert str(error).startswith(sentence), error
    else:
        raise AssertionError(text)
for learner in learners:
    flags = dict(alpha=0.2, learner=learner, horizon=1000, seed=1)
    single = Abstainer(audit=0.5, **flags)
    for n in range(30):
        single.feedback(single.decide(n / 30, id=str(n)).id, n % 3 == 0)
    assert Abstainer.of(single.state()).state() == single.state()
    single.figures()  # and so ``fdr_limit``
    with Abstainers(f"{learner}.sqlite", **flags) as several:
        for n in range(30):
            decision = several.decide(n / 30, key=str(n % 2))
            several.feedback(decision.id, "down" if n % 3 else "up") if n % 2 else several.withdraw(decision.id)
    with Abstainers(f"{learner}.sqlite", **flags) as again:
        assert again.figures("0")["questions"] == 15
        again.fdr_limit()
from exaul.commands.main import main
for learner in learners:
    assert main(["journal", "verify", f"{learner}.sqlite"]) == 0
"""


@cache
def hidden(*distributions):
    """Return the installed modules, other than exaul, that some distributions do not need."""
    needed, waiting = set(), list(distributions)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name not in needed:
            needed.add(name)
            try:
                required = metadata.requires(name) or []
            except metadata.PackageNotFoundError:  # needed elsewhere only, as on Windows
                continue
            waiting += [re.match(r"[\w.-]+", each)[0] for each in required if "extra ==" not in each]
    owners = metadata.packages_distributions().items()
    names = {module for module, x in owners if not {re.sub(r"[-_.]+", "-", each).lower() for each in x} & needed}
    return sorted(names - {"exaul"})


def program(code, distributions, *argv):
    """A program that can import some distributions and what these need, and its arguments."""
    return HIDE + code, json.dumps(hidden(*distributions)), *argv


def run(code, folder, needed=SMALL):
    """Return what such a program prints."""
    process = python(*program(code, needed), folder=folder)
    return process.stdout + process.stderr


def test_abstainers_need_numpy_alone(tmp_path):
    printed = run(USE, tmp_path)
    assert printed.count("same decisions: yes") == printed.count("same snapshots: yes") == 2


def test_what_needs_more_says_so_in_one_line(tmp_path):
    (tmp_path / "log.csv").write_text("score,error\n0.5,1\n")
    each = ["sweep"], ["inspect", "log.csv"], ["journal", "export", "s.sqlite", "--out", "log.csv"]
    printed = run(f"from exaul.commands.main import main; print([main(argv) for argv in {each}])", tmp_path)
    assert re.fullmatch(r"\[2, 2, 2\]\n(exaul: (jax|pandas): not installed; .*\n){3}", printed), printed


def test_the_service_imports_the_extra_serve_alone(tmp_path):
    code = "from exaul.serving.http import application, gateway, server"
    assert run(code, tmp_path, needed=(*SMALL, *SERVING)) == ""


@pytest.mark.slow
def test_the_service_and_its_gateway_need_the_extra_serve_alone(stub, tmp_path):
    flags = "--state s.sqlite --port 0 --warm-start log.csv --upstream"
    (tmp_path / "log.csv").write_text("score,correct\n" + "0.9,1\n0.2,0\n" * 50)
    argv = program(ENTRY, (*SMALL, *SERVING), "serve", *flags.split(), stub.url)
    with service([sys.executable, "-c", *argv], tmp_path, variables()) as ask:
        assert ask("/v1/decide", {"score": 0.9})["answer"]
        question = {"model": "m", "messages": [{"role": "user", "content": "The capital of France?"}]}
        reply = ask("/v1/chat/completions", question)
        assert reply["choices"][0]["message"]["content"] == "Paris"
        assert ask("/v1/feedback", {"id": reply["exaul"]["id"], "thumb": "up"})["accepted"]
        for page in ("/", "/metrics", "/v1/overview"):
            assert ask(page)
