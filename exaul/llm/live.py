"""``exaul live``: the paper's two dialogues, with a model in every role, and the learner between them.

A round: somebody asks, the model answers, the answer gets its scores, a judge says whether it is wrong, the learner
decides, and what was shown earns its thumb. Who asks sees the decisions. A question whose judge cannot be read is
left out, and is no round.

Each call is a function of its request, and the learner one of its seed: to go on with a run is to run it again, for
nothing is asked twice.
"""

import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from exaul.engine import registry
from exaul.engine.checks import MOST, BadInput, count, known, not_negative, setting, within
from exaul.engine.data import settings, tables
from exaul.engine.machine.progress import Progress
from exaul.engine.results.folder import write_beside
from exaul.engine.sweep import Sweep
from exaul.kernels.game import GRIDS
from exaul.llm import expected
from exaul.llm.answering import ROOM, Answer, Asker, Verdict
from exaul.llm.asking import Asking
from exaul.llm.asks import Adversary, Asked, UsedUp, User
from exaul.llm.client import Failed, Refused
from exaul.llm.endpoint import CHARACTERS, Spent, run_to_end
from exaul.llm.folder import CALLS, begun, manifest
from exaul.llm.prompts import prompts
from exaul.llm.questions import Question, Source, contexts, questions
from exaul.serving.abstainer import Abstainer

IDK = "I don't know."
KINDS = "user", "adversary"
TRANSCRIPT = "transcript.jsonl"
IN_A_ROW = 20  # questions that are left out, after which it ends
FIGURES = (  # of the Abstainer, in each line of the transcript
    *("questions", "answers", "open", "rated", "wrong", "fdr_rated", "rated_share", "learned"),
    *("aim", "risk", "risk_bound"),
)
NUMBERED, TOLD = 4, 38  # characters around a question among candidates, and in the history of decisions
RESULTS = {False: "results", True: "replay"}  # folder, by whether the other learners are in it


@dataclass(frozen=True, kw_only=True)
class Live(Asking):
    """What to play. Every field is a flag of ``exaul live``.

    Raises:
        BadInput: a field is out of its range; the sentence names it.
    """

    kind: str = setting(MISSING, "who asks: user (about texts) or adversary (from questions with answers)", "KIND")
    contexts: tuple[str, ...] = setting((), "texts that the user asks about: files with a column context", "FILE")
    questions: tuple[str, ...] = setting((), "questions with answers for the adversary; or hf:NAME", "FILE")
    question_column: str | None = setting(None, "column of the questions, or of the texts", "COL")
    answer_column: str | None = setting(None, "column of the right answers (default: answers, or answer)", "COL")
    learner: str = setting("exaul", "who decides, of those that learn from thumbs on their own answers", "NAME")
    alpha: float = setting(0.1, "target FDR, in (0, 1)", "ALPHA")
    lam: float | None = setting(None, "weight of the FDR against abstaining (default: sqrt(horizon))", "LAMBDA")
    horizon: int = setting(1000, "rounds T; the paper's dialogues have 15,000", "T")
    arms: int = setting(1000, "thresholds H of the grid, at least 2", "H")
    grid: str = setting("uniform", "thresholds: uniform or logit", "NAME")
    turns: int = setting(10, "questions of the user about one text, at most", "N")
    forget: bool = setting(False, "let the model see each question alone, not what was said before about the text")
    candidates: int = setting(20, "questions that the adversary chooses from", "N")
    shown: int = setting(50, "past decisions that the adversary sees", "N")
    replay: bool = setting(False, "play the other learners over what was asked, too")

    def __post_init__(self) -> None:
        super().__post_init__()
        known("kind", (self.kind,), KINDS)
        known("grid", (self.grid,), [name for name in GRIDS if name != "quantile"])
        within("alpha", self.alpha, 0 < self.alpha < 1, "in (0, 1)")
        within("arms", self.arms, 2 <= self.arms < MOST, f"from 2 to {MOST - 1}")
        not_negative("lam", self.lam)
        for name in ("horizon", "turns", "candidates"):
            count(name, getattr(self, name))
        count("shown", self.shown, 0)
        wanted, other = ("contexts", "questions") if self.kind == "user" else ("questions", "contexts")
        if not getattr(self, wanted) or getattr(self, other):
            raise BadInput(f"{wanted}: live {self.kind} needs them, and no {other}")
        if self.kind == "user" and self.judge != "llm":
            raise BadInput(f"judge: {self.judge!r} found; texts have no right answers to match, so it must be llm")
        self.check_endpoint()


class Round(NamedTuple):
    """One round of a dialogue."""

    asked: Asked
    answer: Answer
    verdict: Verdict
    score: float
    answered: bool
    probability: float

    @property
    def error(self) -> float:
        """In [0, 1], 1 is wrong."""
        return self.verdict.error


class Played(NamedTuple):
    """What was played."""

    folder: Path
    rounds: list[Round]
    about: dict[str, Any]  # the manifest
    figures: dict[str, float]  # of the learner


def live(config: Live) -> Played:
    """Play a dialogue; ``transcript.jsonl`` has a line a round as it is played, ``log.csv`` a row at the end.

    Raises:
        BadInput: the sources, the learner or the folder cannot be used, or the endpoint refuses what is asked.
    """
    texts, pool, sources = _read(config)
    read = [source._asdict() for source in sources]
    about = manifest(f"live {config.kind}", config, ("numba", "numpy"), sources=read)
    learner = _learner(config)
    with begun(str(config.out), about, ("replay",)) as folder:
        asker, rounds = Asker(config, folder / CALLS, remembers=True), list[Round]()
        before = len(_whole_lines(folder / TRANSCRIPT))
        chance = np.random.default_rng(config.seed)
        who = User(asker, texts, config.turns, chance) if config.kind == "user" else None
        asks = who or Adversary(asker, pool, config.candidates, config.shown, chance)
        played = Played(folder, rounds, about, {})
        try:
            about["stopped"] = run_to_end(_all(config, asker, asks, learner, rounds, folder))
        finally:
            played.figures.update(learner.figures())
            if len(rounds) >= max(1, before):  # else it was stopped before it had come to where it was
                _write(played, asker, asks)
        tables_at = folder / RESULTS[config.replay]
        if len(rounds) == config.horizon and not (tables_at / "trials.csv").exists():
            shutil.rmtree(tables_at, ignore_errors=True)  # left by a process that was killed
            results(config, played)
    return played


def _read(config: Live) -> tuple[list[str], list[Question], list[Source]]:
    """What the user asks about, or what the adversary chooses from; and where it came from.

    Raises:
        BadInput: it cannot be used, or does not suffice.
    """
    if config.kind == "user":
        texts, sources = contexts(config.contexts, config.question_column)
        return texts, [], sources
    pool, sources = questions(config.questions, config.question_column, config.answer_column)
    if len(pool) < config.horizon:
        raise BadInput(f"horizon: {config.horizon} found; there are {len(pool)} questions, each asked once")
    return [], pool, sources


def _learner(config: Live) -> Abstainer:
    """Who decides.

    Raises:
        BadInput: it cannot be played.
    """
    fields = {"alpha": config.alpha, "learner": config.learner, "grid": config.grid, "arms": config.arms}
    return Abstainer(**fields, horizon=config.horizon, lam=config.lam, seed=config.seed)


def expect(config: Live) -> str:
    """What it would take, as modelled; nobody is asked.

    Raises:
        BadInput: the sources or the learner cannot be used; or a budget is given, and a price is not known.
    """
    _learner(config)
    texts, pool, _ = _read(config)
    own, room = prompts(config.files), max(ROOM, config.max_tokens)
    if config.kind == "user":
        before = (config.turns - 1) / 2 * (room + config.max_tokens) * CHARACTERS  # of the dialogue, in the mean
        text = fmean(map(len, texts))
        asks = len(own["user"]) + text + before
        read, judged = room * CHARACTERS + (0 if config.forget else before), room * CHARACTERS + text
    else:
        read, judged = expected.read_and_judged(pool)
        past, each = min(config.shown, config.horizon), fmean(len(one.question) for one in pool)
        asks = len(own["adversary"]) + len(own["instructions"]) + config.candidates * (each + NUMBERED)
        asks += past * (each + TOLD)
    who = {"questions": expected.Need(config.judge_model or config.model, config.horizon, asks, room)}
    needs = who | expected.answers(config, config.horizon, read, judged)
    return expected.told(config, f"{config.horizon:,} rounds, one after the other", needs)


async def _all(
    config: Live, asker: Asker, asks: User | Adversary, learner: Abstainer, rounds: list[Round], folder: Path
) -> str:
    """Play all rounds; why it ended before the last, if it did."""
    score, left_out = f"score_{config.scores[-1]}", 0
    async with asker:
        try:
            await asker.probe(other_role=True)
            with Progress(config.progress, config.horizon, "rounds played") as progress, _transcript(folder) as add:
                while len(rounds) < config.horizon:
                    one = await _round(asker, asks, learner, score, config.forget)
                    left_out = left_out + 1 if one is None else 0
                    if left_out == IN_A_ROW:
                        return f"{IN_A_ROW} questions in a row were left out"
                    if one is None:
                        continue
                    figures = learner.figures()
                    add(_line(len(rounds) + 1, one, figures))
                    rounds.append(one)
                    progress.update(1, answered=f"{figures['answers']:.0f}", fdr=f"{figures['fdr_rated']:.3f}")
        except Spent:
            return "the budget is reached"
        except UsedUp as error:
            return str(error)
        except Failed as error:
            return f"a call failed ({error}{f': {error.said}' if error.said else ''})"
    return ""


async def _round(
    asker: Asker, asks: User | Adversary, learner: Abstainer, score: str, forget: bool
) -> Round | None:
    """One round; None where the question is left out, for its judge or its score cannot be had."""
    asked = await asks.ask()
    try:
        answer = await asker.answer(asked.question, asked.given, () if forget else asked.before)
        verdict = await asker.judge(asked.question, answer.reply.text, asked.answers, asked.context)
        error = verdict.error
        number = getattr(answer, score)
        left = "no verdict" if math.isnan(error) else "no score" if math.isnan(number) else ""
    except Refused as refused:
        left = str(refused)
    if left:
        asks.left_out[left] += 1
        asks.skip()
        return None
    decision = learner.decide(number)
    if decision.answer:
        learner.feedback(decision.id, error)
    asks.tell(answer.reply.text if decision.answer else IDK, decision.answer, error)
    return Round(asked, answer, verdict, number, decision.answer, decision.probability)


@contextmanager
def _transcript(folder: Path) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Adds a line to the transcript; lines that are there already must be the same.

    Raises:
        BadInput: one is another.
    """
    path = folder / TRANSCRIPT
    whole = _whole_lines(path)
    with path.open("wb") as stream:
        stream.writelines(whole)
        before = iter(whole)

        def add(line: dict[str, Any]) -> None:
            text = json.dumps(line, ensure_ascii=False).encode() + b"\n"
            known = next(before, None)
            if known is None:
                stream.write(text)
                stream.flush()
            elif known != text:
                raise BadInput(
                    f"{path}: round {line['t']} would be another now; its calls or its versions have changed"
                )

        yield add


def _whole_lines(path: Path) -> list[bytes]:
    """The lines of a file, but for a last one that was not written to its end."""
    there = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [line for line in there if line.endswith(b"\n")]


def _line(t: int, one: Round, figures: Mapping[str, float]) -> dict[str, Any]:
    """A line of the transcript, with the learner's figures after the round."""
    asked, answer = one.asked, one.answer
    return {
        "t": t,
        "topic": asked.topic,
        "said": asked.said,
        "candidates": asked.candidates,
        "question": asked.question,
        "answer": answer.reply.text,
        "samples": answer.samples,
        "score_std": None if math.isnan(answer.score_std) else answer.score_std,
        "score_con": None if math.isnan(answer.score_con) else answer.score_con,
        "probability": one.probability,
        "answered": one.answered,
        "error": one.error,
        "judge": one.verdict.said,
        "learner": {name: None if math.isnan(figures[name]) else figures[name] for name in FIGURES},
    }


def _write(played: Played, asker: Asker, asks: User | Adversary) -> None:
    """The log of all rounds, and the manifest."""
    folder, about = played.folder, played.about
    about |= {
        "usage": asker.purse.about(),
        "systems": asker.purse.systems,
        "left out": dict(asks.left_out + asker.troubles),
        "learner": played.figures,
        "end": settings.now(),
    }
    rows = [
        {"id": t, "topic": one.asked.topic, "score": one.score, "error": one.error, "answered": one.answered}
        for t, one in enumerate(played.rounds, 1)
    ]
    table = tables.frame(rows)
    write_beside(folder / "log.csv", lambda path: tables.save(table, path))
    write_beside(folder / "manifest.json", lambda path: settings.save_json(about, path))


def results(config: Live, played: Played) -> None:
    """Tables and figures of a dialogue that was played to its end: the same learner over the same rounds.

    It is a replay sweep of one trial, which makes the same decisions (``docs/online.md``); with ``replay`` the
    other learners are in it, too.

    Raises:
        BadInput: the folder of the results is in use.
    """
    from exaul.engine.run import run  # here, for it imports the engine

    others = registry.DEFAULT if config.replay else ()
    sweep = Sweep(
        environment="replay",
        backend="online",
        learners=tuple(dict.fromkeys((config.learner, *others))),
        logs=(str(played.folder / "log.csv"),),
        trials=1,
        alphas=(config.alpha,),
        lambdas=() if config.lam is None else (config.lam,),
        arms=config.arms,
        grid=config.grid,
        seed=config.seed,
        out=str(played.folder / RESULTS[config.replay]),
    )
    run(sweep)
