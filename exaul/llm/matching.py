"""Whether two short answers are the same text, as the SQuAD benchmark compares them."""

import re
import string
from collections.abc import Iterable

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalised(text: str) -> str:
    """A text in lower case, without ASCII punctuation and English articles, its words one space apart.

    The normalisation of Rajpurkar et al., "SQuAD: 100,000+ Questions for Machine Comprehension of Text", 2016.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def contains(text: str, answers: Iterable[str]) -> bool:
    """Whether a text has the words of one of some answers in a row, all normalised."""
    words = f" {normalised(text)} "
    return any(f" {answer} " in words for answer in map(normalised, answers) if answer)


def matches(text: str, answers: Iterable[str]) -> bool:
    """Whether a text is one of some answers, all normalised."""
    return normalised(text) in map(normalised, answers)
