"""Every door has its arguments, its result and an example in its docstring, and the example runs."""

from __future__ import annotations

import doctest
import inspect
import re

import pytest

import gossamer
from gossamer.lab import Lab
from gossamer.runs import train

ROOMS = (gossamer, gossamer.runs, gossamer.testing)
FURTHER = (Lab, gossamer.tasks.Task, gossamer.tasks.classification)
MADE_BY_OURS = (gossamer.DecentralizedOptimizer, gossamer.runs.Summary)  # nobody calls them
METHODS_TOO = (gossamer.DecentralizedOptimizer, gossamer.Simulation, gossamer.tasks.Task)
SECTIONS = ("Args", "Returns", "Raises", "Example")


def is_door(value):
    """Functions and classes; errors are explained where they are raised."""
    return inspect.isfunction(value) or (inspect.isclass(value) and not issubclass(value, BaseException))


def doors():
    """Return the public functions and classes by name."""
    found = {f"{room.__name__}.{name}": getattr(room, name) for room in ROOMS for name in room.__all__}
    found |= {f"{value.__module__}.{value.__name__}": value for value in FURTHER}
    return {name: value for name, value in found.items() if is_door(value)}


def methods():
    """Return the public methods of the classes that people hold in their hands; properties take nothing."""
    return {
        f"{kind.__name__}.{name}": value
        for kind in METHODS_TOO
        for owner in kind.__mro__
        if owner.__module__.startswith("gossamer")
        for name, value in vars(owner).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }


def sections(value):
    """Return the parts of a docstring by their headings."""
    parts = re.split(rf"^({'|'.join(SECTIONS)}):$", inspect.getdoc(value) or "", flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def parameters(value):
    return [name for name in inspect.signature(value).parameters if name != "self"]


def documented(args):
    return re.findall(r"^    (\w+): \S", args, flags=re.MULTILINE)


def returns_something(value):
    return inspect.isfunction(value) and inspect.signature(value).return_annotation not in ("None", None)


def examples(name, value):
    """Return the examples of the docstring itself and, for a class, of its methods."""
    finder = doctest.DocTestFinder(recurse=inspect.isclass(value), exclude_empty=True)
    found = finder.find(value, name, module=inspect.getmodule(value), globs={})
    if inspect.isclass(value):  # and of the classes of ours that it is made of
        for owner in value.__mro__[1:]:
            if owner.__module__.startswith("gossamer"):
                found += finder.find(owner, name, module=inspect.getmodule(owner), globs={})
    return [test for test in found if test.examples]


def run_examples(name, value):
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    tests = examples(name, value)
    said: list[str] = []
    for test in tests:
        runner.run(test, out=said.append)
    assert tests, f"{name} has no example"
    assert not runner.summarize(verbose=False).failed, "".join(said)


@pytest.mark.parametrize("name", doors())
def test_a_door_says_what_it_takes_and_returns(name):
    value = doors()[name]
    found = sections(value)
    assert "Example" in found, f"{name} has no Example"
    assert ">>>" in found["Example"], f"the Example of {name} does not run"
    if value not in MADE_BY_OURS:
        assert documented(found.get("Args", "")) == parameters(value), f"the Args of {name}"
    if returns_something(value):
        assert "Returns" in found, f"{name} does not say what it returns"


@pytest.mark.parametrize("name", methods())
def test_a_method_says_what_it_takes_and_returns(name):
    value = methods()[name]
    found = sections(value)
    assert documented(found.get("Args", "")) == parameters(value), f"the Args of {name}"
    if returns_something(value):
        assert "Returns" in found, f"{name} does not say what it returns"


IN_THIS_PROCESS = [name for name, value in doors().items() if value not in (Lab, train)]


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_THIS_PROCESS)
def test_the_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_examples(name, doors()[name])


def test_the_example_that_starts_processes_runs():
    run_examples("gossamer.runs.train", train)


def test_the_example_of_the_lab_runs(machine):
    run_examples("gossamer.lab.Lab", Lab)


def test_a_door_without_sections_is_noticed():
    def bare(a: int, *, b: int = 0) -> int:
        """Return a.

        Args:
            a: It.
        """
        return a

    found = sections(bare)
    assert documented(found["Args"]) != parameters(bare)
    assert returns_something(bare)
    assert "Returns" not in found
    assert "Example" not in found
