"""What holds in every test: no silent promotion of ranks and dtypes, float64, FDR risks within their bounds."""

import os
from contextlib import chdir
from functools import wraps
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import settings
from matplotlib.figure import Figure

from exaul.engine import machine, registry
from exaul.engine import run as engine_run
from exaul.engine.results import advice, sweep_figures, trials
from exaul.engine.simulation import totals
from exaul.kernels import metrics
from exaul.serving import configuration
from tests.models.stub import serving

if jax.__version_info__ < (0, 11):  # XLA's older emitter of fusions compiles faster; later versions lack it
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")
# JAX runs on the host unless the environment says otherwise
jax.config.update("jax_platforms", os.environ.setdefault("JAX_PLATFORMS", "cpu"))
# programs are compiled once for all workers and processes of the tests, and for the next session
machine.use_compilation_cache()
if jax.config.jax_compilation_cache_dir is not None:
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = jax.config.jax_compilation_cache_dir
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
settings.register_profile("timeless", deadline=None)  # the first example of a test may compile
settings.load_profile("timeless")


# tests of kernels, and others of bits or of many rounds: XLA optimises their programs
OPTIMISED = "tests/kernels/", "tests/test_goldens.py"
OPTIMISED += tuple(f"tests/engine/test_{name}.py" for name in ("adaptive", "contracts", "session"))
TOGETHER = "tests/kernels/test_backends.py", "tests/kernels/test_learners.py"  # they compile the same programs
# where the longest files are, with which workers begin: none of them is to be the last
LONGEST = *TOGETHER, "tests/experiments/test_e", "tests/engine/", "tests/test_", "tests/commands/", "tests/kernels/"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """One worker for each file, whose tests share fixtures and programs."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return "kernels" if nodeid.startswith(TOGETHER) else nodeid.partition("::")[0]

    config.option.loadscopereorder = False  # those of many tests are not the longest
    return ByFile(config, log)


def pytest_collection_modifyitems(items):
    """Start the longest files first."""
    items.sort(key=lambda item: next((n for n, x in enumerate(LONGEST) if item.nodeid.startswith(x)), len(LONGEST)))


def pytest_configure(config):
    """Ignore warnings about a cached program that another process is writing; it is compiled again."""
    config.addinivalue_line("filterwarnings", "ignore:Error (reading|writing) persistent compilation cache")


@pytest.fixture(autouse=True)
def _not_by_uv(monkeypatch):
    """Print advice as if pytest was not started by ``uv run``."""
    monkeypatch.delenv("UV", raising=False)


@pytest.fixture(autouse=True, scope="module")
def _programs(request):
    """Compile small games without optimisation, also in processes that tests start; then forget the programs."""
    quick = not request.node.nodeid.startswith(OPTIMISED)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = str(int(quick))
    jax.config.update("jax_disable_most_optimizations", quick)
    yield
    machine.forget_programs()


@pytest.fixture(autouse=True, scope="session")
def _advice_is_computed_once():
    """The advice depends on the records and the alphas alone, and takes a second for a profile."""
    compute, tables = advice.advice_table, {}

    @wraps(compute)
    def remember(records, alphas):
        logs = (log._replace(scores=log.scores.tobytes(), errors=log.errors.tobytes()) for log in records)
        key = hash((*logs, *alphas))
        if key not in tables:
            tables[key] = compute(records, alphas)
        return tables[key].copy()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(advice, "advice_table", remember)
        yield


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True)
def _risk_is_bounded(monkeypatch):
    """Check in every sweep of every test that R_t is within its bound, and the risk of feedback within its own."""

    def checked(counts):
        for fields in totals.split_by_learner(counts):
            fields["target"] = fields["alpha"][:, None]
            for *names, bound in (
                ("answered", "wrong", "target", "risk_bound"),
                ("settled", "learned_errors", "aim", "feedback_risk_bound"),
            ):
                if bound in fields:
                    risk = metrics.fdr_risk(*(fields[name] for name in names))
                    assert not (risk > fields[bound] + 1e-9 * fields["checkpoints"][-1]).any(), fields["learner"]
            assert not np.isnan(fields.get("risk_bound", 0)).any(), fields["learner"]
        return trials.trials_table(counts)

    monkeypatch.setattr(engine_run, "trials_table", checked)


def draw_few_figures(patch):
    """Draw an empty figure in place of those of a sweep: they are made of the tables alone, and take longer."""
    patch.setattr(sweep_figures, "draw", lambda *tables: {"answered": Figure()})


@pytest.fixture
def few_figures():
    with pytest.MonkeyPatch.context() as patch:
        draw_few_figures(patch)
        yield


@pytest.fixture
def in_folder(tmp_path):
    """The test stands in a folder of its own."""
    with chdir(tmp_path):
        yield


@pytest.fixture(scope="session")
def endpoints():
    """Two endpoints that listen until the end: to start and stop them takes longer than most tests."""
    with serving() as first, serving() as second:
        yield first, second


@pytest.fixture
def stub(endpoints):
    """An endpoint that replies at once, and was asked nothing yet."""
    return endpoints[0].renew()


@pytest.fixture
def constant_learners(monkeypatch):
    """Let programs use the learners of ``tests/constant.py``."""
    for name in ("answers", "abstains"):
        monkeypatch.setitem(registry.LEARNERS, name, f"tests.constant:{name}")
    monkeypatch.setattr(configuration, "ONLINE_LEARNERS", (*configuration.ONLINE_LEARNERS, "answers", "abstains"))


@pytest.fixture
def data():
    """The folder of real logs, named by EXAUL_DATA."""
    if "EXAUL_DATA" not in os.environ:
        pytest.skip("EXAUL_DATA names no folder of real logs")
    return Path(os.environ["EXAUL_DATA"])
