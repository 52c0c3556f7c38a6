"""Read logs of Inspect as rows of a log."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from exaul.engine.checks import BadInput
from exaul.llm.readers.rows import Row
from exaul.llm.replies import is_logprob, likelihood, normalised


def inspect(paths: Sequence[str], metric: str | None, chosen: str | None) -> list[Row]:
    """Read logs of Inspect: one row per sample, from its first epoch; further epochs give the share that agrees.

    Args:
        paths: ``.eval`` or ``.json`` logs.
        metric: the scorer; required if a log has several.

    Raises:
        BadInput: Inspect is not installed, or a log is unreadable or has several scorers or no scores.
    """
    try:
        from inspect_ai.log import read_eval_log
        from inspect_ai.scorer import value_to_float
    except ImportError as error:
        raise BadInput("inspect: needs inspect-ai; pip install inspect-ai") from error
    number = value_to_float()
    rows = []
    for path in paths:
        try:
            log = read_eval_log(path)
        except Exception as error:
            raise BadInput(f"{path}: unreadable ({error})") from error
        epochs: dict[str, list[Any]] = {}
        for sample in sorted(log.samples or [], key=lambda sample: sample.epoch):
            if sample.scores and not sample.error and (metric is None or metric in sample.scores):
                epochs.setdefault(str(sample.id), []).append(sample)
        for id, samples in epochs.items():
            rows.append({"id": id, "group": Path(path).stem} | _scored(path, samples, metric, number))
    if not rows:
        raise BadInput(f"{', '.join(paths)}: no sample with a score; at least one is needed")
    return rows


def _scored(path: str, samples: list[Any], metric: str | None, number: Callable[[Any], float]) -> Row:
    names = list(samples[0].scores)
    if metric is None and len(names) > 1:
        raise BadInput(f"{path}: several scorers, {', '.join(names)}; --metric chooses one")
    name = metric or names[0]
    if name not in names:
        raise BadInput(f"{path}: no scorer {name!r}; it has {', '.join(names)}")
    first, others = samples[0], samples[1:]
    tokens = first.output.choices[0].logprobs if first.output.choices else None
    each = [token.logprob for token in tokens.content] if tokens else []
    row: Row = {}
    if each and all(map(is_logprob, each)):
        row["score_std"] = likelihood(each)
    if others:
        each_score = [sample.scores.get(name) for sample in samples]
        answers = [
            normalised(str((score and score.answer) or sample.output.completion))
            for score, sample in zip(each_score, samples, strict=True)
        ]
        row["score_con"] = answers[1:].count(answers[0]) / len(others)
    if not row:
        raise BadInput(
            f"{path}: sample {first.id} has neither usable logprobs nor further epochs, so it has no score"
        )
    right = number(first.scores[name].value)
    if not 0 <= right <= 1:
        raise BadInput(f"{path}: sample {first.id} has the score {right}; it must be in [0, 1]")
    return row | {"error": 1 - right}
