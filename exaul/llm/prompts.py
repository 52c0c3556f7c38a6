"""Prompts: one text file per role, with the names of inserted values in braces."""

import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from exaul.engine.checks import BadInput, check_holds, check_known

NEEDED = {  # by role, what a prompt must be filled with; it may be filled with what the default is filled with
    "system": set[str](),
    "answer": {"question"},
    "judge": {"answer"},
    "user": {"context"},
    "adversary": {"history"},
    "instructions": set[str](),
}
FOLDER = files(__package__) / "roles"
SHORT_ANSWERS = FOLDER / "short.txt"  # with examples, for models that write sentences
PLACEHOLDER = re.compile(r"\{(\w+)\}")


def read_prompts(choices: Sequence[str]) -> dict[str, str]:
    """Return the prompts by role: the defaults, or the user's files for some roles, each as ``ROLE=FILE``.

    Raises:
        BadInput: an entry has another form, a role is unknown, or its file is unreadable, contains an unknown name
            or lacks a required one.
    """
    defaults = {role: (FOLDER / f"{role}.txt").read_text("utf-8") for role in NEEDED}
    texts = dict(defaults)
    for choice in choices:
        role, _, path = choice.partition("=")
        check_holds("prompt", choice, path != "", "ROLE=FILE")
        check_known("prompt", (role,), NEEDED)
        try:
            texts[role] = Path(path).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{path}: unreadable ({getattr(error, 'strerror', None) or error})") from error
        names, allowed = set(PLACEHOLDER.findall(texts[role])), PLACEHOLDER.findall(defaults[role])
        for name in sorted(names.difference(allowed)):
            listing = ", ".join(f"{{{name}}}" for name in allowed) or "nothing"
            raise BadInput(f"{path}: {{{name}}} found; the prompt of {role} can be filled with {listing}")
        for name in NEEDED[role] - names:
            raise BadInput(f"{path}: no {{{name}}}; the prompt of {role} needs it")
    return texts


def fill(prompt: str, **values: object) -> str:
    """Insert values into a prompt. Other braces, and braces within values, stay unchanged."""
    return PLACEHOLDER.sub(lambda match: str(values.get(match[1], match[0])), prompt).strip()
