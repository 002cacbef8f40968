"""The longest tests first: what is left for the end is short, and both cores are busy until then."""

from __future__ import annotations

import gc
import signal

# A shell starts what runs in its background deaf to Ctrl-C, and all processes of the tests with it.
signal.signal(signal.SIGINT, signal.default_int_handler)

LONGEST = ("test_readme.py", "test_same_bits.py", "test_lab.py", "test_train.py")


def pytest_collection_finish():
    gc.freeze()  # all of torch and the tests need not be searched for garbage again and again


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))
