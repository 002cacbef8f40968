"""What the workers of a file's `job` have done."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.frameworks import run_once


@pytest.fixture
def workers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return run_once(request.module.job, tmp_path_factory)
