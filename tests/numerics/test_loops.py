"""Every loop of a compiled function ends: Ctrl-C does not stop one."""

from __future__ import annotations

import ast
from pathlib import Path

import calibrant

SOURCE = Path(calibrant.__file__).parent


def compiled_functions(tree):
    """Functions with a decorator that compiles them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(
            name.id in ("njit", "over_rows", "kernel")
            for decorator in node.decorator_list
            for name in ast.walk(decorator)
            if isinstance(name, ast.Name)
        ):
            yield node


def advances(loop):
    """Whether every round of a ``while`` moves a counter that its condition bounds."""
    bounded = {
        name.id
        for test in ast.walk(loop.test)
        if isinstance(test, ast.Compare)
        for name in (test.left, *test.comparators)
        if isinstance(name, ast.Name)
    }
    leaves_early = any(isinstance(node, ast.Continue) for node in ast.walk(loop))
    return not leaves_early and any(
        isinstance(step, ast.AugAssign)
        and isinstance(step.op, ast.Add | ast.Sub | ast.RShift | ast.FloorDiv)
        and isinstance(step.value, ast.Constant)
        and isinstance(step.value.value, int)
        and isinstance(step.target, ast.Name)
        and step.target.id in bounded
        for step in loop.body
    )


def test_no_loop_of_a_kernel_depends_on_a_comparison_of_floats_alone():
    n_functions, endless = 0, []
    for path in sorted(SOURCE.rglob("*.py")):
        for function in compiled_functions(ast.parse(path.read_text())):
            n_functions += 1
            endless += [
                f"{path.relative_to(SOURCE)}:{loop.lineno} in {function.name}"
                for loop in ast.walk(function)
                if isinstance(loop, ast.While) and not advances(loop)
            ]
    assert n_functions > 50
    assert endless == []


def test_the_check_of_loops_sees_an_endless_one():
    source = """
@njit(cache=True)
def ties(values):
    i = 0
    while i < len(values):
        while values[i] - values[0] <= 0.0:
            i += 1
"""
    (function,) = compiled_functions(ast.parse(source))
    found = [loop for loop in ast.walk(function) if isinstance(loop, ast.While)]
    assert [advances(loop) for loop in found] == [False, False]
