"""Can the rehearsal see? Deliberate bugs are switched on one by one, and a schedule must find each."""

from __future__ import annotations

import pytest

from tests.support.deliberate_bugs_of_edges import BUGS
from tests.support.rehearsal import rehearse

MOST = 400  # schedules in which a bug must show itself


def first_broken(bug):
    """Return the first schedule that fails with a bug, by an invariant or by an error in the mesh itself."""
    with bug.switched_on():
        for seed in range(MOST):
            try:
                rehearse(seed, bug.kinds)
            except Exception:  # noqa: BLE001 - a bug may do anything
                return seed
    return None


@pytest.mark.slow
@pytest.mark.parametrize("name", BUGS)
def test_a_schedule_finds_it_and_passes_without_it(name):
    bug = BUGS[name]
    seed = first_broken(bug)
    assert seed is not None, f"{MOST} schedules have not noticed that {name}"
    rehearse(seed, bug.kinds)
