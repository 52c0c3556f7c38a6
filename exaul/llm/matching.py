"""Comparison of short answers as in the SQuAD benchmark."""

import re
import string
from collections.abc import Iterable

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalised(text: str) -> str:
    """Return a text in lower case, without ASCII punctuation and English articles, words separated by one space.

    As in Rajpurkar et al., "SQuAD: 100,000+ Questions for Machine Comprehension of Text", 2016.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def contains(text: str, answers: Iterable[str]) -> bool:
    """Return whether a text contains the words of an answer in a row, all normalised."""
    words = f" {normalised(text)} "
    return any(f" {answer} " in words for answer in map(normalised, answers) if answer)


def matches(text: str, answers: Iterable[str]) -> bool:
    """Return whether a text equals one of the answers, all normalised."""
    return normalised(text) in map(normalised, answers)
