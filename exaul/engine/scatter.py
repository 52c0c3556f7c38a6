"""One sweep over many workers: some of its trials to each, on any executor of ``concurrent.futures``."""

import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, as_completed
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from exaul.engine.checks import BadInput, one_line, within
from exaul.engine.data import settings
from exaul.engine.machine import cache
from exaul.engine.machine.progress import Progress
from exaul.engine.play.prepare import Prepared, prepare
from exaul.engine.results import counts, sealed
from exaul.engine.results.counts import Counts
from exaul.engine.results.folder import Busy
from exaul.engine.results.manifest import read_manifest, refuse_changes
from exaul.engine.results.session import Session
from exaul.engine.results.trials import curves_table
from exaul.engine.run import (
    NOTHING,
    Result,
    begun,
    counted_of,
    joined_of,
    manifest_of,
    recalled,
    resumed,
    unfinished,
)
from exaul.engine.sweep import Sweep

PATIENCE = 30.0  # seconds that a part waits for the lock of a worker that may be dead
T = TypeVar("T")
Part = tuple[Path, dict[str, Any], Counts]  # where it was played, its manifest, what it counted


class Unfinished(RuntimeError):
    """Something that was sent to workers failed; the sentence names it, and says how to go on where one can."""


def scatter(
    sweep: Sweep, executor: Executor, parts: int, *, progress: str = "quiet", save_every: float = 60
) -> Result:
    """Play a sweep in parts, as many at once as the executor plays; the same bits as ``run``.

    Where all workers see the sweep's folder, a part that is sent again goes on from its last save; elsewhere it is
    played anew. Workers must not be forked from this process: JAX does not survive it.

    Args:
        sweep: what to play.
        executor: who plays; of processes, ``ProcessPoolExecutor(mp_context=get_context("spawn"))``.
        parts: into which the trials are divided, 1 to their number.
        progress: as of ``run``, in whole parts.
        save_every: as of ``run``, of each part.

    Raises:
        BadInput: a log or the folder cannot be used, or the workers are forked; nothing was written.
        Mismatch: the workers' devices, versions or sources differ.
        Unfinished: a part failed; those that did not are kept in the sweep's folder.
    """
    _check(sweep, executor, parts)
    prepared = prepare(sweep)
    about = manifest_of(prepared, settings.now()) | {"batch": 1, "parts": parts}
    session = Session.begin(sweep.out, save_every, about)
    return _gathered(prepared, session, executor, parts, progress, save_every)


def rescatter(
    path: str,
    executor: Executor,
    given: Mapping[str, Any] = NOTHING,
    *,
    trust: bool = False,
    progress: str = "quiet",
    save_every: float = 60,
) -> Result | None:
    """Go on with a sweep in parts that was interrupted; None if it had ended.

    Args:
        path: its folder.
        executor: as of ``scatter``.
        given: as of ``resume``.
        trust: as of ``resume``.
        progress: as of ``scatter``.
        save_every: as of ``run``.

    Raises:
        BadInput: there is no such sweep, it is not one in parts, or something that its bits depend on has changed.
        Mismatch: as of ``scatter``.
        Unfinished: as of ``scatter``.
    """
    there = unfinished(read_manifest(Path(path)), path, given)
    if there is None:
        return None
    parts = there.get("parts")
    if not isinstance(parts, int):
        raise BadInput(
            f"resume: the sweep in {path} was not begun in parts; go on with: exaul sweep --resume {path}"
        )
    prepared, about = recalled(there, path, "resume", trust)
    _check(prepared.sweep, executor, parts)
    session = resumed(path, there, about | {"parts": parts}, save_every)
    return _gathered(prepared, session, executor, parts, progress, save_every)


def _check(sweep: Sweep, executor: Executor, parts: int) -> None:
    within("parts", parts, 1 <= parts <= sweep.trials, f"from 1 to {sweep.trials}, the trials")
    if sweep.shard is not None:
        raise BadInput("shard: given, but the parts of a sweep are its shards")
    check_workers(executor)


def check_workers(executor: Executor | None) -> None:
    """Check that an executor's workers were not forked from this process.

    Raises:
        BadInput: they are.
    """
    context = getattr(executor, "_mp_context", None)
    if context is not None and context.get_start_method() == "fork":
        raise BadInput(
            'executor: its workers are forked, which JAX does not survive; mp_context=get_context("spawn")'
        )


def _gathered(
    prepared: Prepared,
    session: AbstractContextManager[Session],
    executor: Executor,
    parts: int,
    progress: str,
    save_every: float,
) -> Result:
    sweep = prepared.sweep
    with session as opened, Progress(progress, prepared.rounds) as bar, TemporaryDirectory() as own:
        home = Path(own) if opened.folder is None else opened.folder / "state"
        places = {k: home / "parts" / str(k) for k in range(1, parts + 1)}
        shards = {k: replace(sweep, shard=f"{k}/{parts}", out=str(place)) for k, place in places.items()}
        sent, done, failed = dict[Future[Any], int](), list[Part](), dict[int, str]()

        def take(future: Future[tuple[dict[str, Any], bytes]], k: int) -> None:
            about, blob = future.result()
            counted = counts.from_arrays(sealed.read(BytesIO(blob), f"part {k}", about))
            done.append((places[k], about, counted))
            bar.update(prepared.rounds * len(counted.trials) // sweep.trials)
            if opened.due():
                some = [one for _, _, one in done]
                opened.show(curves_table(counts.join(some, sum(len(one.trials) for one in some))))

        @contextmanager
        def noting(k: int) -> Iterator[None]:
            try:
                yield
            except Exception as error:
                failed[k] = _reason(error)

        with cancelling(sent):
            for k, shard in shards.items():
                with noting(k):
                    sent[executor.submit(play_part, asdict(shard), save_every)] = k
            for future in as_completed(sent):
                with noting(sent[future]):
                    take(future, sent[future])
        if failed:
            raise Unfinished(_sentence(failed, parts, sweep.out))
        result, joined = joined_of(done, prepared.records, sweep.out)
        opened.close(lambda path: result.write(path, joined), result.manifest | {"end": settings.now()})
    return result


@contextmanager
def cancelling(sent: Iterable[Future[Any]]) -> Iterator[None]:
    """Cancel the calls that were sent and still wait, where something is raised."""
    try:
        yield
    except BaseException:
        for future in sent:
            future.cancel()
        raise


def result_of(future: Future[T], what: str) -> T:
    """What came of a call that was sent to a worker.

    Args:
        future: of the call.
        what: it was sent for.

    Raises:
        BadInput: as the call.
        Unfinished: it failed for another reason.
    """
    try:
        return future.result()
    except Exception as error:
        cause = _cause(error)
        if isinstance(cause, BadInput):
            raise cause from error
        raise Unfinished(f"{what}: {_reason(error)}") from error


def _cause(error: Exception) -> Exception:
    """What a worker raised, which Ray wraps in a traceback."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, Exception) else error


def _reason(error: Exception) -> str:
    error = _cause(error)
    return one_line(f"{type(error).__name__}: {error}")


def _sentence(failed: Mapping[int, str], parts: int, out: str | None) -> str:
    each = "; ".join(f"part {k} of {parts}: {reason}" for k, reason in sorted(failed.items())[:3])
    more = f"; and {len(failed) - 3} more" if len(failed) > 3 else ""
    kept = f"; {parts - len(failed)} are done and kept; go on with: exaul sweep --resume {out}" if out else ""
    return f"{each}{more}{kept}"


def play_part(configuration: Mapping[str, Any], save_every: float) -> tuple[dict[str, Any], bytes]:
    """Play a shard in its folder, or what is left of it; its manifest, and its counts as ``npz``.

    Args:
        configuration: of the shard, with its folder.
        save_every: as of ``run``.

    Raises:
        BadInput: as of ``run`` and ``resume``.
    """
    cache.use()
    sweep = Sweep(**configuration)
    late = time.monotonic() + PATIENCE
    while time.monotonic() < late:
        try:
            return _played(sweep, save_every)
        except Busy:  # another worker plays it, or was lost and its lock with it
            time.sleep(0.5)
    with TemporaryDirectory() as own:
        return _played(replace(sweep, out=f"{own}/part"), save_every)


def _played(sweep: Sweep, save_every: float) -> tuple[dict[str, Any], bytes]:
    assert sweep.out is not None
    place = Path(sweep.out)
    prepared = prepare(sweep)
    if (place / "manifest.json").is_file():
        there = read_manifest(place)
        if there["end"] is not None:
            return there, (place / "counts.npz").read_bytes()
        about = manifest_of(prepared, settings.now())
        refuse_changes(there, about, f"part {sweep.shard}")
        session = resumed(sweep.out, there, about, save_every)
    else:
        session = begun(prepared, manifest_of(prepared, settings.now()), save_every)
    with session as opened:
        counted = counted_of(prepared, opened, _nothing)
        about = {**opened.about, "end": settings.now()}
        stream = BytesIO()
        sealed.write(stream, counts.arrays(counted), about)
        opened.close(lambda path: (path / "counts.npz").write_bytes(stream.getvalue()), about)
    return about, stream.getvalue()


def _nothing(rounds: int) -> None:
    """Rounds of a part are not reported: the part is, once it is played."""
