"""How the tests run: in which order, on which machines, and what is said about those that did not."""

from __future__ import annotations

import gc
import signal
from collections import Counter

import hypothesis
import pytest

from gossamer.lab import LabError, require_lab
from tests import kinds

# What helpers assert is explained as what tests assert is.
pytest.register_assert_rewrite("tests.support")

# A shell starts what runs in its background deaf to Ctrl-C, and all processes of the tests with it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says how busy the machine is, and nothing else.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")

# The longest first: what is left for the end is short, and all cores are busy until then.
LONGEST = ("test_readme.py", "test_same_bits.py", "test_lab.py", "test_train.py")


@pytest.fixture
def machine():
    """A lab needs root and a few tools: where they are missing, its tests say so and are skipped."""
    try:
        require_lab()
    except LabError as error:
        pytest.skip(str(error))


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="no processes, no root, no browser")


def pytest_configure(config):
    for name, what in kinds.MARKS.items():
        config.addinivalue_line("markers", f"{name}: {what}")
    if config.getoption("quick"):
        config.pluginmanager.register(OnlyQuick())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        kinds.mark(item)
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


def pytest_collection_finish():
    gc.freeze()  # all of torch and the tests need not be searched for garbage again and again


class OnlyQuick:
    """Lets only tests run that start no processes, and fails one that tries."""

    def __init__(self):
        self.guard = kinds.NoProcesses()

    def pytest_collection_modifyitems(self, config, items):
        config.hook.pytest_deselected(items=[item for item in items if not kinds.is_quick(item)])
        items[:] = filter(kinds.is_quick, items)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self):
        return (yield from self._guarded())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self):
        return (yield from self._guarded())

    def _guarded(self):
        with self.guard.testing():
            result = yield
        assert not self.guard.tried, f"quick tests start no processes, but this one does: {self.guard.tried}"
        return result


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    """Say at the very end what was not checked here, and how it would be."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput") or config.getoption("collectonly"):
        return
    missing = Counter(_reason(report) for report in reporter.stats.get("skipped", ()))
    lines = [f"{count:5} tests: {reason}" for reason, count in missing.most_common()]
    if config.getoption("quick"):
        lines.append("      all that starts processes, or computes for long: make test")
    if "not study" in config.getoption("markexpr"):
        lines.append("      the long studies: make study")
    if lines:
        reporter.write_line("\nNot checked here:")
        for line in lines:
            reporter.write_line(line)


def _reason(report):
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")
