"""``Abstainer`` and its journal run with numpy alone, and the service with the libraries that serve."""

import json
import re
import sys
from functools import cache
from importlib import metadata

import pytest

from tests.processes import ENTRY, python, service, variables

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
    each = ["sweep"], ["inspect", "log.csv"], ["journal", "export", "s.sqlite", "log.csv"]
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
