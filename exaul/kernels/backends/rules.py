"""Compile the functions of a rule with Numba, from the source that JAX traces."""

from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any


def compile_with_helpers(
    compiled: Callable[..., Any], function: Callable[..., Any], within: tuple[Any, ...] = ()
) -> Callable[..., Any]:
    """Compile a function of a rule, and all functions that it calls by name or closes over.

    JAX calls such helpers as Python; compiled code can call only compiled functions.

    Args:
        compiled: decorator that compiles a function, see ``Target``.
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
