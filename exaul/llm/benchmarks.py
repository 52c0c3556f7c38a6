"""Read the results of benchmarks, of lm-evaluation-harness and of Inspect, as rows of a log."""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from exaul.engine.checks import BadInput, as_typed, check_legible, quote
from exaul.engine.logs.log import parse_label, parse_number
from exaul.llm.replies import LOGPROB_ROUNDING, is_logprob, likelihood, normalised
from exaul.llm.tables import LogRows, Row, read_rows, require_fields, share_of, table_hint, unpack

DEFAULT_METRICS = "acc", "exact_match"  # default metrics of lm-eval; the first that exists is used


def lm_eval(paths: Sequence[str], metric: str | None, filter: str | None) -> LogRows:
    """Read ``samples_*.jsonl`` of ``lm_eval --log_samples``.

    The score of a multiple-choice answer is its probability among all choices. The score of a text is the share of
    its repeats with the same text, since these files hold no log-probabilities of texts. The ``metric`` is a field
    with 1 for right. Of several filters, ``filter`` names one.

    Raises:
        BadInput: a file has another format or several filters, or gives no score.
    """
    rows = []
    for path in map(Path, paths):
        columns, file_rows = read_rows(path)
        field = metric or next((name for name in DEFAULT_METRICS if name in columns), "acc")
        fields = "doc_id", "resps", "filtered_resps", field
        require_fields(path, columns, fields, " (--metric names the correctness)")
        samples = list(file_rows)
        filters = sorted({str(row.get("filter")) for row in samples})
        if filter is None and len(filters) > 1:
            raise BadInput(f"{path}: several filters, {', '.join(filters)}; --filter chooses one")
        for row in (row for row in samples if filter in (None, str(row.get("filter")))):
            right = share_of(f"{row.where}: {field}", row.get(field))
            identity = {"id": f"{path.stem}-{row.get('doc_id')}", "group": path.stem}
            rows.append(identity | (_choice_score(row) or _agreement(row)) | {"error": 1 - right})
    return _check_rows(paths, rows, f" of the filter {filter}" if filter else "")


def _choice_score(row: Row) -> dict[str, float] | None:
    """Return the score of a multiple choice, whose replies are pairs of log-likelihood and greedy; else None."""
    replies = unpack(row.get("filtered_resps"))
    if not (isinstance(replies, list) and replies and all(isinstance(x, list) and len(x) == 2 for x in replies)):
        return None
    logprobs = [parse_number(logprob) for logprob, _ in replies]
    if not (all(x <= LOGPROB_ROUNDING for x in logprobs) and max(logprobs) > -math.inf):
        raise BadInput(
            f"{row.where}: filtered_resps is {quote(replies)}; log-likelihoods must be at most 0, not all -inf"
        )
    if len(logprobs) < 2:
        raise BadInput(f"{row.where}: one log-likelihood only; a score needs at least two")
    # Softmax of the largest log-likelihood; subtracting the maximum keeps exp from underflowing.
    return {"score_logprob": 1 / math.fsum(math.exp(x - max(logprobs)) for x in logprobs)}


def _agreement(row: Row) -> dict[str, float]:
    """Return the score of a text: the share of repeats that equal the rated text."""
    repeats, answer = unpack(row.get("resps")), unpack(row.get("filtered_resps"))
    repeats = repeats[0] if isinstance(repeats, list) and repeats else []
    if not isinstance(repeats, list) or len(repeats) < 2:
        raise BadInput(
            f"{row.where}: the text was generated once, and lm-eval logs no probability of texts; "
            f"repeat the task, or use {as_typed('collect')}, to get a score"
        )
    answer = answer[0] if isinstance(answer, list) and answer else answer
    if not all(isinstance(text, str) for text in (answer, *repeats)):
        raise BadInput(f"{row.where}: resps or filtered_resps has a repeat that is not a text; each must be one")
    matches = [normalised(text) == normalised(answer) for text in repeats]
    if not any(matches):
        raise BadInput(
            f"{row.where}: the filter changed the text, so no repeat can be compared with it; choose another filter"
        )
    return {"score_exact": sum(matches) / len(matches)}


def inspect(paths: Sequence[str], metric: str | None, filter: str | None) -> LogRows:
    """Read logs of Inspect: one row per sample, from its first epoch; further epochs give the share that agrees.

    The ``metric`` is the scorer, which must be given if a log has several. Inspect has no ``filter``.

    Raises:
        BadInput: Inspect is not installed, or a log is unreadable or has several scorers or no scores.
    """
    rows = []
    for path in paths:
        try:
            from inspect_ai.log import read_eval_log
            from inspect_ai.scorer import value_to_float

            log, to_float = read_eval_log(path), value_to_float()
        except Exception as error:
            is_missing = isinstance(error, ImportError)
            reason = "needs inspect-ai; pip install inspect-ai" if is_missing else f"no log of Inspect ({error})"
            raise BadInput(f"{path}: {reason}{table_hint(Path(path))}") from error
        epochs: dict[str, list[Any]] = {}
        for sample in sorted(log.samples or [], key=lambda sample: sample.epoch):
            if sample.scores and not sample.error and (metric is None or metric in sample.scores):
                epochs.setdefault(str(sample.id), []).append(sample)
        for id, samples in epochs.items():
            names = list(samples[0].scores)
            name = metric or names[0]
            if metric is None and len(names) > 1:
                raise BadInput(f"{path}: several scorers, {', '.join(names)}; --metric chooses one")
            value = samples[0].scores[name].value
            right = parse_label(to_float(value) if isinstance(value, str) else value)  # fails for 10**400
            if math.isnan(right):
                raise BadInput(f"{path}: sample {id} has the score {quote(value)}; it must be in [0, 1]")
            identity = {"id": id, "group": Path(path).stem}
            rows.append(identity | _sample_scores(path, samples, name) | {"error": 1 - right})
    return _check_rows(paths, rows, " with a score")


def _check_rows(paths: Sequence[str], rows: LogRows, condition: str) -> LogRows:
    """Return the rows. Raise BadInput if there is none, or an id is not a text or repeats."""
    if not rows:
        raise BadInput(f"{', '.join(paths)}: no row{condition}; at least one is needed")
    for (id, group), number in Counter((row["id"], row["group"]) for row in rows).items():
        check_legible("files: an id", id)
        if number > 1:
            raise BadInput(f"files: the id {quote(id)} occurs twice in {quote(group)}; is a file given twice?")
    return rows


def _sample_scores(path: str, samples: Sequence[Any], name: str) -> dict[str, float]:
    """Return the likelihood of a sample's first epoch if it has logprobs, and the share of epochs that agree."""
    first_sample, scores = samples[0], dict[str, float]()
    tokens = first_sample.output.choices[0].logprobs if first_sample.output.choices else None
    logprobs = [token.logprob for token in tokens.content] if tokens else []
    if logprobs and all(map(is_logprob, logprobs)):
        scores["score_logprob"] = likelihood(logprobs)
    if samples[1:]:
        outputs = [(sample.scores.get(name), sample.output.completion) for sample in samples]
        answer, *other_answers = [normalised(str((score and score.answer) or text)) for score, text in outputs]
        scores["score_exact"] = other_answers.count(answer) / len(other_answers)
    if not scores:
        raise BadInput(
            f"{path}: sample {first_sample.id} has neither usable logprobs nor further epochs, so it has no score"
        )
    return scores
