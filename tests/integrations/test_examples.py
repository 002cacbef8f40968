"""The examples train with two workers, as their first lines say, and go on when they are started again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import frameworks
from tests.support.processes import torchrun

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("name", ["transformers_trainer", "accelerate_loop", "lightning_module"])
def test_the_page_shows_what_the_examples_do(name):
    page = (EXAMPLES.parent / "docs" / "integrations.md").read_text(encoding="utf-8")
    section = next(part for part in page.split("\n## ") if f"{name}.py" in part)
    (diff,) = re.findall(r"```diff\n(.*?)```", section, re.DOTALL)
    added = [line[1:] for line in diff.splitlines() if line.startswith("+")]
    script = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()
    assert 2 <= len(added) <= 4
    assert all(line in script for line in added)


@pytest.mark.parametrize(
    ("name", "found", "wanted"),
    [
        pytest.param(
            "transformers_trainer", r"loss ([\d.]+),", (0, 0.5), marks=frameworks.needs("transformers")
        ),
        pytest.param(
            "accelerate_loop", r"average model ([\d.]+)%", (80, 100), marks=frameworks.needs("accelerate")
        ),
        pytest.param(
            "lightning_module", r"average model ([\d.]+)%", (80, 100), marks=frameworks.needs("lightning")
        ),
    ],
)
def test_an_example_learns(name, found, wanted, tmp_path):
    printed = torchrun(EXAMPLES / f"{name}.py", tmp_path, str(tmp_path / "run"))
    assert wanted[0] <= float(re.findall(found, printed)[-1]) <= wanted[1]
