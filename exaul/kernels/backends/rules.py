"""The functions of a rule, ready for compiled loops: one source for JAX, which traces it, and Numba."""

from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any


def compile_with_helpers(
    compiled: Callable[..., Any], function: Callable[..., Any], within: tuple[Any, ...] = ()
) -> Callable[..., Any]:
    """Compile a function of a rule, and the functions that it calls by name or closes over, and so on.

    JAX calls such helpers as they are; compiled code can call compiled functions only.

    Args:
        compiled: makes a function ready to be called by others, as of ``Target``.
        function: written in Python.
        within: functions that are being compiled: one that calls itself is not compiled again.

    Returns:
        The function, compiled.
    """
    within = (*within, function)

    def ready(value: Any) -> Any:
        is_helper = isinstance(value, FunctionType) and value not in within
        return compile_with_helpers(compiled, value, within) if is_helper else value

    code, scope = function.__code__, function.__globals__
    scope = scope | {name: ready(scope[name]) for name in code.co_names if name in scope}
    cells = tuple(CellType(ready(cell.cell_contents)) for cell in function.__closure__ or ()) or None
    copy = FunctionType(code, scope, function.__name__, function.__defaults__, cells)
    copy.__kwdefaults__ = function.__kwdefaults__
    return compiled(copy)
