"""The page: complete, self-contained, and safe against whatever is in a run."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="no matplotlib: pip install 'gossamer[report]'")
pytest.importorskip("jinja2", reason="no jinja2: pip install 'gossamer[report]'")

from gossamer.report import write_report
from gossamer.runs.record import read_run
from tests.support.synthetic_runs import run_folder, write

HOSTILE = '<script>alert("x")</script>&amp;</style>{{ 7*7 }}'
VOID = {"meta", "br", "path", "use", "image", "rect", "circle", "line"}
ADDRESSES = ("src", "href", "xlink:href", "srcset", "data", "action", "poster", "background", "content")


class Page(HTMLParser):
    """All tags and texts of a page; tags must be closed in order."""

    def __init__(self, text):
        super().__init__()
        self.source = text
        self.tags: list[tuple[str, dict[str, Any]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []
        self.text = " ".join(" ".join(self.texts).replace("\u00a0", " ").split())

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.texts.append(data)


@pytest.fixture
def page_of(tmp_path):
    def page_of(*runs):
        return Page(write_report(list(runs), tmp_path / "out" / "report.html").read_text(encoding="utf-8"))

    return page_of


@pytest.fixture
def make(tmp_path):
    def make(name, **options):
        return read_run(run_folder(tmp_path / name, **{"steps": 66} | options))

    return make


def test_the_page_of_one_run_says_everything(page_of, make):
    page = page_of(make("mine", foreign={"unknown_setting": [1, {"a": None}]}, uneven=1.0))
    for text in (
        "8 workers reached 96.3 % accuracy with 45 times fewer bytes than in full precision.",
        "a worker sent 1.2 MB; full precision over the same graph would be 54 MB. That saved 52.8 MB, 98 %.",
        "gossamer train --task digits",
        "torch 2.13.0",
        "commit 4dfa232",
        'unknown_setting [1, {"a": null}]',
        "data none",
        "12.3 s measured",
        "consensus distance 0.1234",
        "spectral gap 0.0976",
        "Partition dirichlet:0.1",
        "2026-11-16 05:10 UTC",
    ):
        assert text in page.text, text
    pictures = [a["aria-label"] for tag, a in page.tags if tag == "svg" and "aria-label" in a]
    assert len(pictures) == 8
    assert "script" not in dict(page.tags)
    assert ("details", {"class": "one", "open": None}) in page.tags


def test_the_page_of_many_runs(page_of, make):
    page = page_of(
        make("full", algorithm="dpsgd", compressor=None, sent=54_000_000),
        make("bad", status="diverged", error="the loss was nan\non worker 3"),
        make("dead", status="failed", error="PeerLost: worker 2 is gone"),
        make("stopped", status="interrupted"),
        make("going", summary=False),
        make("new", summary=False, evaluate=False, steps=4),
    )
    assert "This run diverged after 66 steps. the loss was nan on worker 3" in page.text
    assert "This run failed after 66 steps. PeerLost: worker 2 is gone" in page.text
    assert "This run was interrupted after 66 steps." in page.text
    assert ("details", {"class": "one"}) in page.tags
    states = [
        a["class"] for tag, a in page.tags if tag == "span" and a.get("class", "").startswith("status ")
    ]
    assert [state.split()[1] for state in states[:6]] == [
        "finished",
        "diverged",
        "failed",
        "interrupted",
        "running",
        "running",
    ]


def test_a_run_before_its_first_line(page_of, tmp_path):
    folder = tmp_path / "begun"
    folder.mkdir()
    write(folder / "config.json", {"task": "digits", "workers": 4, "algorithm": "dpsgd", "topology": "ring"})
    page = page_of(read_run(folder))
    assert "dpsgd ring with 4 workers is still running" in page.text
    assert "Nothing has been measured yet." in page.text


def test_runs_of_several_tasks_have_axes_of_their_own(page_of, make):
    page = page_of(make("a"), make("b", task="text", changes={"metric": "test loss", "better": "lower"}))
    assert len([a for tag, a in page.tags if tag == "svg" and "aria-label" in a]) == 12 + 4
    assert "2 runs of 2 tasks: 2 finished." in page.text


def check_self_contained(page):
    for tag, attributes in page.tags:
        assert tag not in ("link", "iframe", "object", "embed", "img", "base", "form")
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in ADDRESSES and tag != "meta":
                assert re.match(r"#|data:image/png;base64,", value or ""), (tag, name, value)
    outside = r"@import|url\(\s*[\"']?(?!#)|https?://|//cdn"
    assert re.findall(outside, page.source) == []
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', page.source))
    assert used <= set(ids)
    assert "#fe0" not in page.source  # every marker colour has become the page's


def test_the_page_is_self_contained(page_of, make):
    counts = {"partition": {"kind": "iid", "counts": [[3] * 200] * 8}}  # large enough to become a picture
    page = page_of(make("a"), make("b", uneven=2.0), make("c", status="diverged"), make("d", changes=counts))
    check_self_contained(page)
    assert "data:image/png" in page.source
    assert '<meta name="viewport"' in page.source
    assert "prefers-color-scheme: dark" in page.source


def test_the_only_script_is_ours(page_of, make):
    page = page_of(make("a"), make("b"))
    scripts = re.findall(r"<script>(.*?)</script>", page.source, re.DOTALL)
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    (policy,) = [a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy


def test_hostile_text_stays_text(tmp_path, page_of):
    changes = {"error": HOSTILE, "network": HOSTILE, "metric": HOSTILE, "average": {HOSTILE: 0.5}}
    changes |= {"status": HOSTILE, "clock": HOSTILE, "partition": {"kind": HOSTILE, "counts": [[1, 2]]}}
    options = {"algorithm": HOSTILE, "topology": HOSTILE, "task": HOSTILE, HOSTILE: HOSTILE}
    folder = run_folder(tmp_path / "<script>alert(1)<", steps=66, changes=changes, foreign=options)
    write(folder / "environment.json", {"command": HOSTILE, "torch": HOSTILE, "started": HOSTILE, HOSTILE: 1})
    run = read_run(folder)
    page = page_of(run, run)
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert [tag for tag, _ in page.tags].count("style") == 1
    assert page.text.count(HOSTILE) > 20  # word by word, as it was written
    check_self_contained(page)


def test_no_runs_is_a_mistake(tmp_path):
    with pytest.raises(ValueError, match="name at least one"):
        write_report([], tmp_path / "report.html")
