"""Compile the functions of a rule with Numba, from the source that JAX traces; and read and write its state."""

from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any

Function = Callable[..., Any]


def compile_with_helpers(
    compiled: Callable[..., Any], function: Callable[..., Any], within: tuple[Any, ...] = ()
) -> Callable[..., Any]:
    """Compile a function of a rule, and all functions that it calls by name or closes over.

    JAX calls such helpers as Python; compiled code can call only compiled functions.

    Args:
        compiled: decorator that compiles a function, as of ``native.compile``.
        function: a Python function.
        within: functions that are being compiled, which ends recursion.

    Returns:
        The compiled function.
    """
    within = (*within, function)

    def ready(value: Any) -> Any:
        is_helper = isinstance(value, FunctionType) and value not in within
        return compile_with_helpers(compiled, value, within) if is_helper else value

    # The copy has the same code but other globals and cells: the original stays callable from Python.
    code, scope = function.__code__, function.__globals__
    scope = scope | {name: ready(scope[name]) for name in code.co_names if name in scope}
    cells = tuple(CellType(ready(cell.cell_contents)) for cell in function.__closure__ or ()) or None
    copy = FunctionType(code, scope, function.__name__, function.__defaults__, cells)
    copy.__kwdefaults__ = function.__kwdefaults__
    return compiled(copy)


def accessors(kind: Any, compiled: Function, index: Function) -> tuple[Function, Function]:
    """Compile functions that read and write the numbers of one copy.

    Args:
        kind: a NamedTuple of M floats.
        compiled: decorator that compiles a function.
        index: ``index(number, at)`` returns the place of the n-th number of the copy at ``at`` in the array.

    Returns:
        ``read(array, at)``, which returns the NamedTuple, and ``write(array, at, numbers)``.
    """
    # A chain of M functions, one per number: with a loop over numbers inside, LLVM would not vectorise the
    # loop over copies.
    where = compiled(index)

    @compiled
    def values(array, at):
        return ()

    @compiled
    def write(array, at, numbers):
        pass

    for number in range(len(kind._fields)):
        values, write = _one_more(values, write, number, compiled, where)

    @compiled
    def read(array, at):
        return kind(*values(array, at))

    return read, write


def _one_more(
    values: Function, write: Function, number: int, compiled: Function, where: Function
) -> tuple[Function, Function]:
    """Extend the functions for the first numbers by one number."""

    @compiled
    def all_values(array, at):
        return (*values(array, at), array[where(number, at)])

    @compiled
    def write_all(array, at, numbers):
        write(array, at, numbers)
        array[where(number, at)] = numbers[number]

    return all_values, write_all
