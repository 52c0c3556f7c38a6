"""``exaul live``: the paper's two dialogues, with a model in every role and the learner between them.

A round: the user or adversary asks, the model answers, the answer is scored and judged, the learner decides, and a
shown answer gets its feedback. The asking side sees the decisions. Questions without verdict or score are left out.

Every call is a function of its request, and the learner of its seed. A run is therefore continued by running it
again from the first round with the stored replies.
"""

import json
import math
import shutil
from dataclasses import MISSING
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from exaul.engine import registry
from exaul.engine.checks import BadInput, check_count, check_known, setting
from exaul.engine.folder import write_manifest, write_table
from exaul.engine.logs import files
from exaul.engine.progress import Progress
from exaul.engine.sweep import Sweep
from exaul.kernels.game import GRIDS
from exaul.kernels.online import Uniforms
from exaul.kernels.uniforms import LEARNER_STREAM
from exaul.llm.asker import Asker
from exaul.llm.asking_sides import Adversary, NothingLeft, User
from exaul.llm.calls import BudgetReached, CallFailed, CallRefused
from exaul.llm.endpoint import run_to_end
from exaul.llm.flags import EndpointFlags
from exaul.llm.folder import CALLS_FILE, LOG_FILE, manifest_of, open_folder
from exaul.llm.questions import Question, read_contexts, read_questions

IDK = "I don't know."
ASKING_SIDES = "user", "adversary"
TRANSCRIPT = "transcript.jsonl"
MAX_LEFT_OUT = 20  # questions left out in a row that end the dialogue
TABLE_FOLDERS = {False: "results", True: "replay"}  # folder of tables, by config.replay


class Live(EndpointFlags):
    """Configuration of ``exaul live``; every field is a flag."""

    kind: str = setting(
        MISSING, "asking side: user (about texts) or adversary (from questions with answers)", "KIND"
    )
    contexts: tuple[str, ...] = setting((), "texts for the user: files with a column context", "FILE")
    questions: tuple[str, ...] = setting((), "questions with answers for the adversary; or hf:NAME", "FILE")
    learner: str = setting("exaul", "learner; must learn from feedback on its own answers only", "NAME")
    alpha: float = setting(0.1, "target FDR, in (0, 1)", "ALPHA")
    lam: float | None = setting(None, "weight of the FDR against abstaining (default: sqrt(horizon))", "LAMBDA")
    horizon: int = setting(1000, "rounds T; the paper's dialogues have 15,000", "T")
    arms: int = setting(1000, "thresholds H of the grid, at least 2", "H")
    grid: str = setting("uniform", "thresholds: uniform or logit", "NAME")
    turns: int = setting(10, "maximum questions of the user about one text", "N")
    forget: bool = setting(False, "show the answering model each question without the earlier messages")
    candidates: int = setting(20, "questions that the adversary chooses from", "N")
    shown: int = setting(50, "past decisions that the adversary sees", "N")
    replay: bool = setting(False, "also run the other learners on the same rounds")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_known("kind", (self.kind,), ASKING_SIDES)
        check_known("grid", (self.grid,), [name for name in GRIDS if name != "quantile"])
        for name in ("turns", "candidates"):
            check_count(name, getattr(self, name))
        check_count("shown", self.shown, 0)  # the learner's numbers are checked when it is made
        required, forbidden = ("contexts", "questions") if self.kind == "user" else ("questions", "contexts")
        if not getattr(self, required) or getattr(self, forbidden):
            raise BadInput(f"{required}: live {self.kind} needs them, and no {forbidden}")
        if self.kind == "user" and self.judge != "llm":
            raise BadInput(f"judge: {self.judge!r} found; texts have no right answers to match, so it must be llm")


class DialogueLearner:
    """The learner between the models: trial 0 of a replay sweep with the seed of the dialogue, round by round."""

    def __init__(self, config: Live) -> None:
        """Raise BadInput unless the learner can be made, and learns from feedback on its own answers only."""
        import jax

        from exaul.engine.functional import cuts, grid, make

        learner = registry.resolve("learner", config.learner)
        if learner.feedback != "bandit":
            raise BadInput(f"learner: {config.learner} found; it must learn from feedback on its own answers only")
        self._x64 = partial(jax.enable_x64, True)
        with self._x64():
            kernel: Any
            kernel, params = make(learner, config.arms, alpha=config.alpha, horizon=config.horizon, lam=config.lam)
            self._state = kernel.init(params)
        self._cut_of = partial(cuts, grid(config.grid, config.arms))
        self._decide = jax.jit(lambda state, cut, u: kernel.decide(state, params, cut, u))
        self._learn = jax.jit(lambda state, cut, decision, error: kernel.learn(state, params, cut, decision, error))
        self._uniforms, self._alpha = Uniforms(config.seed, LEARNER_STREAM, 0), config.alpha
        self._question_count = self._answer_count = 0
        self._wrong = 0.0

    def run_round(self, score: float, error: float) -> tuple[bool, float]:
        """Run a round with its feedback at once. Return whether it was answered, and the probability of that."""
        with self._x64():
            cut = self._cut_of(np.array([score]))[0]
            state, decision = self._decide(self._state, cut, self._uniforms.at(self._question_count))
            self._state = self._learn(state, cut, decision, error)
        answered = bool(decision.answer)
        self._question_count, self._answer_count = self._question_count + 1, self._answer_count + answered
        self._wrong += error * answered
        return answered, float(decision.P)

    def figures(self) -> dict[str, float | None]:
        """Return counts, the FDR (None without answers), and the FDR risk (eq. 1)."""
        return {
            "questions": self._question_count,
            "answers": self._answer_count,
            "wrong": self._wrong,
            "fdr": self._wrong / self._answer_count if self._answer_count else None,
            "fdr_risk": self._wrong - self._alpha * self._answer_count,
        }


class LiveJob:
    """A dialogue with language models. A run in the same folder continues and repeats no call."""

    config: Live
    rounds: list[dict[str, Any]]  # after ``run``, the lines of the transcript up to its last round
    manifest: dict[str, Any]  # complete after ``run``

    def __init__(self, config: Live) -> None:
        """Read the sources and create the learner; raise BadInput if one is unusable or questions are too few."""
        self.config, self.rounds, self._learner = config, [], DialogueLearner(config)
        self._texts, self._pool = list[str](), list[Question]()
        if config.kind == "user":
            self._texts, sources = read_contexts(config.contexts, config.question_column)
        else:
            self._pool, sources = read_questions(config.questions, config.question_column, config.answer_column)
            if len(self._pool) < config.horizon:
                supply = f"there are {len(self._pool)} questions, each asked once"
                raise BadInput(f"horizon: {config.horizon} found; {supply}")
        self.manifest = manifest_of(f"live {config.kind}", config, sources=sources)

    def run(self) -> None:
        """Run the dialogue. Write a line of ``transcript.jsonl`` after each round, and ``log.csv`` at the end.

        Raises:
            BadInput: the folder is unusable, or a model cannot be asked.
        """
        config = self.config
        with open_folder(config.out, self.manifest, ("replay",)) as folder:
            asker, rng = Asker(config, folder / CALLS_FILE, is_dialogue=True), np.random.default_rng(config.seed)
            user = User(asker, self._texts, config.turns, rng) if config.kind == "user" else None
            side = user or Adversary(asker, self._pool, config.candidates, config.shown, rng)
            path = folder / TRANSCRIPT
            lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
            stored = [line for line in lines if line.endswith(b"\n")]  # a killed process can leave half a line
            try:
                self.manifest["stopped"] = run_to_end(self._run_rounds(asker, side, path, stored))
            finally:
                asker.record(self.manifest, side.left_out)
                self.manifest["learner"] = self._learner.figures()
                if len(self.rounds) >= len(stored):  # else the log and manifest of the earlier run say more
                    self._write(folder)
            tables_folder = folder / TABLE_FOLDERS[config.replay]
            if len(self.rounds) == config.horizon and not (tables_folder / "trials.csv").exists():
                shutil.rmtree(tables_folder, ignore_errors=True)  # incomplete, from a killed process
                write_tables(config, folder)

    async def _run_rounds(self, asker: Asker, side: User | Adversary, path: Path, stored: list[bytes]) -> str:
        """Run all rounds. Return why the dialogue stopped early, or "".

        Raises:
            BadInput: a line differs from the ``stored`` one of an earlier run, or a model cannot be asked.
        """
        config = self.config
        async with asker:
            try:
                await asker.probe()
                with Progress(config.progress, config.horizon, "rounds") as bar, path.open("ab") as stream:
                    stream.truncate(sum(map(len, stored)))
                    while (number := len(self.rounds)) < config.horizon:
                        line = await self._round(asker, side)
                        text = json.dumps(line, ensure_ascii=False).encode() + b"\n"
                        if number >= len(stored):
                            stream.write(text)
                            stream.flush()
                        elif text != stored[number]:
                            reason = "its calls or its versions have changed"
                            raise BadInput(f"{path}: round {number + 1} differs from the stored one; {reason}")
                        self.rounds.append(line)
                        figures = line["learner"]
                        fdr = "-" if figures["fdr"] is None else f"{figures['fdr']:.3f}"
                        bar.update(1, answered=figures["answers"], fdr=fdr)
            except (BudgetReached, NothingLeft) as error:
                return str(error)
            except CallFailed as error:
                return f"a call failed ({error}{f': {error.reply_text}' if error.reply_text else ''})"
        return ""

    async def _round(self, asker: Asker, side: User | Adversary) -> dict[str, Any]:
        """Run one round, and return its line of the transcript; NothingLeft: too many questions are left out."""
        for _ in range(MAX_LEFT_OUT):
            turn = await side.ask()
            question, chat = turn.question, () if self.config.forget else turn.earlier_messages
            try:
                answer = await asker.answer(question, chat)
                score = answer.scores[self.config.score[-1]]
                reason = "no verdict" if math.isnan(answer.error) else "no score" if math.isnan(score) else ""
            except CallRefused as refused:
                reason = str(refused)
            if not reason:
                break
            side.left_out[reason] += 1
            side.skip()
        else:
            raise NothingLeft(f"{MAX_LEFT_OUT} questions in a row were left out")
        answered, probability = self._learner.run_round(score, answer.error)
        side.observe_outcome(answer.reply.text if answered else IDK, answered, answer.error)
        return {
            "t": len(self.rounds) + 1,
            "topic": question.id,
            "said": turn.asker_reply,
            "candidates": turn.choice_count,
            "question": question.question,
            "answer": answer.reply.text,
            "samples": answer.samples,
            "scores": {name: None if math.isnan(x) else x for name, x in answer.scores.items()},
            "probability": probability,
            "answered": answered,
            "error": answer.error,
            "judge": answer.judge_reply,
            "learner": self._learner.figures(),
        }

    def _write(self, folder: Path) -> None:
        """Write the log of all rounds, and the manifest."""
        rows = [line | {"id": line["t"], "score": line["scores"][self.config.score[-1]]} for line in self.rounds]
        if rows:
            table = files.Table(rows)[["id", "topic", "score", "error", "answered"]]
            write_table(folder / LOG_FILE, table)
        write_manifest(folder, self.manifest)


def write_tables(config: Live, folder: Path) -> None:
    """Write tables and figures of a finished dialogue.

    They come from a replay sweep of one trial over the log, in which the learner makes the same decisions,
    up to rounding (``docs/online.md``); with ``replay`` the other learners run, too.

    Raises:
        BadInput: the folder of the results is in use.
    """
    from exaul.engine.run import run  # imports Numba

    other_learners = registry.DEFAULT_LEARNERS if config.replay else ()
    sweep = Sweep(
        environment="replay",
        learners=tuple(dict.fromkeys((config.learner, *other_learners))),
        logs=(str(folder / LOG_FILE),),
        trials=1,
        alphas=(config.alpha,),
        lambdas=() if config.lam is None else (config.lam,),
        arms=config.arms,
        grid=config.grid,
        seed=config.seed,
        out=str(folder / TABLE_FOLDERS[config.replay]),
    )
    run(sweep)
