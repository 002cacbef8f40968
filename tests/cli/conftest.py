"""The command line, without a process of its own."""

from __future__ import annotations

import sys

import pytest

from gossamer.cli import main as cli


@pytest.fixture
def gossamer(monkeypatch, capsys, tmp_path):
    """Run the command line in this process; return its exit code and what it said."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["gossamer", *map(str, words)])
        monkeypatch.chdir(tmp_path)
        code: str | int = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code or 0
        said = capsys.readouterr()
        return code, " ".join((said.out + said.err).split())

    return run
