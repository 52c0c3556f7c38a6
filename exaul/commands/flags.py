"""Make command-line flags from the fields of dataclasses."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from inspect import get_annotations
from types import UnionType
from typing import Any, NamedTuple, NoReturn, get_args, get_origin, get_type_hints

from exaul.commands.terminal import HelpPrinted
from exaul.engine.checks import LONGEST_QUOTE, BadInput, as_typed, integer, meant, number, shorten

FLAG_GROUPS = {  # of flags in a help text, by title
    "rows and rounds": "logs each least sources environment tunables group horizon trials contexts questions turns"
    " forget candidates shown",
    "columns of a log": "score error correct drop_missing question_column answer_column equal scale",
    "scores of a tool": "metric filter score_name thumb_name down",
    "learners and targets": "key learner learners alpha alphas lam lambdas warm_start arms grid anytime eta gamma"
    " eta_scales gamma_scales steps delta coverage slack",
    "imperfect feedback": "feedback_rate bias flips missing reserve uncorrected delay expires open",
    "audits": "audit abandon_audits per_day audits_per_day token_variable",
    "the model that is asked": "endpoint model key_variable samples temperature max_tokens extra prompt",
    "who judges": "right wrong judge judge_endpoint judge_model judge_key_variable",
    "limits of the calls": "limit concurrent per_minute retries timeout price budget",
    "results": "out resume theory checkpoints replay no_texts width",
    "how it runs": "seed precision backend save_every batches dry_run progress trust shard ray dask",
}

GROUP_OF_CLASS = {  # titles by class, where they depend on the class alone
    "ServeFlags": "the service",
    "GatewayFlags": "the gateway in front of a model",
    "SharedConfiguration": "learners and targets",
}


class Command(NamedTuple):
    """A command: dataclasses whose fields are its flags, and the function that runs it with their values.

    ``COMMANDS`` of a module has its commands by name, and ``COMMAND_MODULES`` in ``main.py`` the module of each.
    """

    configurations: tuple[type, ...]
    run: Callable[[Mapping[str, Any]], int]  # returns the exit status
    examples: str = ""  # at the end of the help text, with {exaul} for the command as it is typed


class Parser(argparse.ArgumentParser):
    """A parser of whole flags, which reports errors as ``BadInput``, in one line without the usage."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **settings)
        self.words: list[str] = []  # commands or flags that a misspelt one can mean
        self.commands_with: Callable[[str], Sequence[str]] = lambda flag: ()  # other commands that have a flag

    def error(self, message: str) -> NoReturn:
        """Raise ``message`` as BadInput, shortened, with the words that were perhaps meant."""
        words = (word.strip("',:") for word in message.partition(" (choose")[0].split())
        is_flag = "".join(self.words[:1]).startswith("--")
        unknown = [word for word in words if word.startswith("--") == is_flag and word not in self.words]
        hint = meant(unknown, self.words, 0.75)  # two dashes are common to all flags
        for flag in unknown if is_flag and not hint else ():
            if commands := self.commands_with(flag):
                hint += f"; {flag} is a flag of exaul {', '.join(commands)}"
        if " value: " in message and "," in message:
            hint += "; separate values by spaces, and decimals by a point"
        raise BadInput(f"{shorten(message, 10 * LONGEST_QUOTE)}{hint}")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Raise HelpPrinted: argparse calls this after printing help or the version."""
        raise HelpPrinted


def add_flags(parser: Parser, configurations: Sequence[type]) -> None:
    """Add a flag for every field of some dataclasses, in the groups of FLAG_GROUPS; inherited fields come last.

    A field without default is positional. A flag of several values, such as --alphas, is also known without its s.
    The metadata of a field has ``help``, where the command as it is typed fills ``{exaul}``, and ``metavar``. Flags
    that are not given are absent from the parsed namespace, so that a caller can tell a default from a given value.
    """
    titles = {name: title for title, words in FLAG_GROUPS.items() for name in words.split()}
    flags: list[tuple[str, Field[Any], Any]] = []  # title of the group, field and type
    for config in configurations:
        title, hints = GROUP_OF_CLASS.get(config.__name__, ""), get_type_hints(config)
        for f in sorted(fields(config), key=lambda f: f.name not in get_annotations(config)):
            flags.append((title or titles.get(f.name, ""), f, hints[f.name]))
    all_names, ordered = {f.name for _, f, _ in flags}, dict.fromkeys((*FLAG_GROUPS, *GROUP_OF_CLASS.values()))
    groups = {"": parser} | {title: parser.add_argument_group(title) for title in ordered}  # help omits empty ones
    parser.usage = "%(prog)s [FLAGS]"  # the flags are too many for one line
    for title, f, hint in flags:
        name, text = f.name, f.metadata["help"].format(exaul=as_typed()).replace("%", "%%")
        is_tuple = get_origin(hint) is tuple
        if f.default is MISSING:
            parser.usage += f" {f.metadata['metavar']}{' ...' * is_tuple}"
            parser.add_argument(name, help=text, metavar=f.metadata["metavar"], nargs="+" if is_tuple else None)
            continue
        group, flag = groups[title], "--" + name.replace("_", "-")
        parser.words.append(flag)
        if hint is bool:
            group.add_argument(flag, action="store_true", help=text, default=argparse.SUPPRESS)
            continue
        if f.default not in (None, (), "") and "(default" not in text:
            default = " ".join(map(str, f.default)) if isinstance(f.default, tuple) else f.default
            text += f" (default: {default})"
        options: dict[str, Any] = {"default": argparse.SUPPRESS, "metavar": f.metadata["metavar"]}
        while get_origin(hint) is tuple or isinstance(hint, UnionType):  # a float for ``tuple[float, ...]``
            hint = get_args(hint)[0]
        options |= {"action": "extend", "nargs": "+"} if is_tuple else {}  # if given twice, it has all values
        options["type"] = {float: number, int: integer}.get(hint, hint)
        group.add_argument(flag, help=text, **options)
        if is_tuple and name.endswith("s") and name[:-1] not in all_names:
            parser.add_argument(flag[:-1], dest=name, help=argparse.SUPPRESS, **options)


def fields_given(configuration: type, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that are fields of a configuration."""
    return {f.name: arguments[f.name] for f in fields(configuration) if f.name in arguments}
