"""Read results of lm-evaluation-harness as rows of a log."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from exaul.engine.checks import BadInput, quote, typed
from exaul.engine.logs import files
from exaul.llm.readers.rows import Row
from exaul.llm.replies import ROUNDING, normalised

METRICS = "acc", "exact_match"  # default metrics of lm-eval; the first that exists is used


def lm_eval(paths: Sequence[str], metric: str | None, chosen: str | None) -> list[Row]:
    """Read ``samples_*.jsonl`` of ``lm_eval --log_samples``.

    The score of a multiple-choice answer is its probability among all choices. The score of a text is the share of
    its repeats with the same text, since these files hold no log-probabilities of texts.

    Args:
        paths: the files.
        metric: the field with 1 for right; None: ``acc`` or ``exact_match``.
        chosen: the filter to read; required if a file has several.

    Raises:
        BadInput: a file has another format or several filters, or gives no score.
    """
    rows = []
    for path in map(Path, paths):
        present = files.columns(path)
        known = metric or next((name for name in METRICS if name in present), None)
        for name in ("doc_id", "resps", "filtered_resps", known or "acc"):
            if name not in present:
                raise BadInput(
                    f"{path}: no field {name}; it has {', '.join(present)} (--metric names the correctness)"
                )
        names = ["doc_id", "resps", "filtered_resps", str(known), *(["filter"] if "filter" in present else [])]
        cells = files.read(path, names)
        filters = sorted(set(map(str, cells.columns.get("filter", []))))
        if chosen is None and len(filters) > 1:
            raise BadInput(f"{path}: several filters, {', '.join(filters)}; --filter chooses one")
        for n, number in enumerate(cells.rows):
            row = {name: cells.columns[name][n] for name in names}
            if chosen is not None and str(row.get("filter")) != chosen:
                continue
            where = f"{path}, row {number}"
            right = row[str(known)]
            if isinstance(right, bool) or not isinstance(right, (int, float)) or not 0 <= right <= 1:
                raise BadInput(f"{where}: {known} is {quote(str(right))}; it must be a number in [0, 1]")
            score = _choice(where, row["filtered_resps"]) or _share(where, row)
            rows.append({"id": f"{path.stem}-{row['doc_id']}", "group": path.stem} | score | {"error": 1 - right})
    if not rows:
        of = f" of the filter {chosen}" if chosen else ""
        raise BadInput(f"{', '.join(paths)}: no row{of}; at least one is needed")
    return rows


def _choice(where: str, replies: Any) -> Row | None:
    """Return the score of a multiple choice, whose replies are pairs of log-likelihood and greedy; else None."""
    if not (isinstance(replies, list) and replies and all(isinstance(x, list) and len(x) == 2 for x in replies)):
        return None
    try:
        each = [float(logprob) for logprob, _ in replies]
    except (TypeError, ValueError, OverflowError) as error:
        raise BadInput(f"{where}: filtered_resps is {quote(str(replies))}; log-likelihoods are needed") from error
    if len(each) < 2:
        raise BadInput(f"{where}: one log-likelihood only; a score needs at least two")
    if not (all(x <= ROUNDING for x in each) and max(each) > -math.inf):
        raise BadInput(f"{where}: filtered_resps is {quote(each)}; log-likelihoods must be at most 0, not all -inf")
    # Softmax of the largest log-likelihood; subtracting the maximum keeps exp from underflowing.
    return {"score_std": 1 / math.fsum(math.exp(x - max(each)) for x in each)}


def _share(where: str, row: Row) -> Row:
    """Return the score of a text: the share of repeats that equal the rated text."""
    repeats = row["resps"][0] if isinstance(row["resps"], list) and row["resps"] else []
    if not isinstance(repeats, list) or len(repeats) < 2:
        raise BadInput(
            f"{where}: the text was generated once, and lm-eval logs no probability of texts; "
            f"repeat the task, or use {typed('collect')}, to get a score"
        )
    answer = row["filtered_resps"]
    answer = answer[0] if isinstance(answer, list) and answer else answer
    if not all(isinstance(text, str) for text in (answer, *repeats)):
        raise BadInput(f"{where}: resps or filtered_resps has a repeat that is not a text; each must be one")
    answer, each = normalised(answer), [normalised(text) for text in repeats]
    if answer not in each:
        raise BadInput(
            f"{where}: the filter changed the text, so repeats cannot be compared with it; choose another filter"
        )
    return {"score_con": each.count(answer) / len(each)}
