"""The package installs without the links of the checkout, beside packages of others, and beside its clone."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SWEEP = "from exaul import Sweep, run; print(len(run(Sweep(trials=2, horizon=20, arms=5)).trials))"


def files():
    """The files of the checkout, as an archive of it has them, without the two links."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        pytest.skip("not a git checkout")
    paths = [Path(name) for name in found.stdout.split("\0") if name]
    return [path for path in paths if (ROOT / path).is_file()]


def copied(folder):
    for path in files():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes((ROOT / path).read_bytes())
    assert not (folder / "engine").exists()
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel that is built where both links are missing."""
    pytest.importorskip("hatchling")
    source, out = copied(tmp_path_factory.mktemp("source")), tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    done = subprocess.run(build, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (found,) = out.glob("*.whl")
    return found


def run(code, folder, path):
    """Return the output of a program whose path has some folders before the installed packages."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path)), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_wheel_is_complete_and_runs_beside_packages_of_others(wheel, tmp_path):
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(site)
    assert {name.split("/")[0] for name in names} == {"exaul", f"{wheel.name.rsplit('-', 3)[0]}.dist-info"}
    for name in ("exaul/engine/data/profiles.csv", "exaul/llm/roles/judge.txt", "exaul/py.typed"):
        assert name in names
    packaged = {path.as_posix() for path in files() if path.parts[0] == "exaul"}
    assert packaged <= set(names)
    for other in ("kernels", "engine"):
        (site / other).mkdir()
        (site / other / "__init__.py").write_text("raise RuntimeError('a package of somebody else')\n")
    where = "import exaul; print(exaul.__file__); "
    found, rows = run(where + SWEEP, tmp_path, [site])
    assert Path(found).parent == site / "exaul"
    assert int(rows) > 0


def test_a_script_beside_a_clone_imports_the_package(tmp_path):
    """The clone is a folder called ``exaul`` without ``__init__.py``, before the installed packages on the path."""
    (tmp_path / "exaul").symlink_to(ROOT)
    script = tmp_path / "script.py"
    script.write_text("import exaul\nprint(exaul.__file__, exaul.Sweep.__name__)\n")
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    installed = Path(sysconfig.get_paths()["purelib"])
    assert done.stdout.split()[1] == "Sweep"
    assert Path(done.stdout.split()[0]).parent in (ROOT / "exaul", installed / "exaul")
