"""Put docs/results/slow_networks.json and mesh_speeds.json into docs/slow_networks.md, figures and README.md.

    python -m benchmarks.slow_networks.page

The pages' text is written by hand; what stands between their markers is written here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.pages import fill, number, raw_lines, table
from benchmarks.record import FIGURES, ROOT, read
from benchmarks.slow_networks.figures import draw
from benchmarks.slow_networks.plan import SLOW

PAGE, README = ROOT / "docs" / "slow_networks.md", ROOT / "README.md"
COLUMNS = (
    "method",
    "s to the goal",
    "ms a step",
    "kB a step",
    "CPU ms a step",
    "ms beyond the limit",
    "of it rendezvous",
)
RIVALS = (
    "times sooner than DDP",
    "its best hook",
    "the best of all else",
    "D-PSGD",
    "all-reduce of 8 bits",
)
NAMED = ("best hook", "best of all else")  # those of which the reader must be told which one it is


def page(text: str, record: Mapping[str, Any]) -> str:
    """Return the page with the tables of a record."""
    text = fill(text, "raw lines", raw_lines(record))
    results = record["results"]
    tasks = results["tasks"]
    for problem, found in tasks.items():
        for network in SLOW:
            text = fill(text, f"{problem}: {network}", network_table(found, network))
        text = fill(text, f"{problem}: learning", learning_table(found))
    text = fill(text, "ratios", ratios_table(tasks))
    text = fill(text, "clock", comparison_table(results["clock"]))
    text = fill(text, "corners", comparison_table(results["corners"]))
    text = fill(text, "mesh", mesh_table(read("mesh_speeds")["results"]["rows"]))
    return fill(text, "whole", whole_table(results))


def readme(text: str, record: Mapping[str, Any]) -> str:
    """Return README with how many times sooner Gossamer is there than DDP, its best hook, all else."""
    tasks = record["results"]["tasks"]
    lines = [
        [network]
        + [
            " / ".join(number(ratio[name]["times"], 2) for name in ("DDP", *NAMED))
            for found in tasks.values()
            for ratio in [found["networks"][network]["ratios"]["sooner than"]]
        ]
        for network in SLOW
    ]
    return fill(text, "slow networks", table(["", *tasks], lines))


PAGES = {PAGE: page, README: readme}


def network_table(found: Mapping[str, Any], network: str) -> str:
    """Return what a step and the whole way to the goal take on a network."""
    rows = found["networks"][network]["rows"]
    ordered = sorted(rows, key=lambda m: rows[m]["time"] or float("inf"))
    lines = [
        [
            f"**{method}**" if rows[method]["ours"] else method,
            number(rows[method]["time"]),
            number(1000 * rows[method]["seconds"]),
            number(rows[method]["bytes"] / 1000),
            number(1000 * rows[method]["cpu seconds"]),
            number(1000 * max(rows[method]["beyond the limit"], 0)),
            number(1000 * rows[method]["rendezvous"]) if "rendezvous" in rows[method] else "",
        ]
        for method in ordered
    ]
    return table(COLUMNS, lines)


def learning_table(found: Mapping[str, Any]) -> str:
    """Return how many steps every method needs, and with which learning rate."""
    lines = [
        [method, number(known["steps"], 4), "–" if known["lr"] is None else f"{known['lr']:g}"]
        for method, known in found["learned"].items()
    ]
    return table(["method", "steps to the goal", "lr"], lines)


def ratios_table(results: Mapping[str, Any]) -> str:
    """Return how many times sooner Gossamer is there."""
    lines = []
    for network in SLOW:
        for problem, found in results.items():
            ratio = found["networks"][network]["ratios"]
            times = [
                number(than["times"], 2) + (f" ({than['method']})" if name in NAMED else "")
                for name, than in ratio["sooner than"].items()
            ]
            least = number(ratio["DDP without a network"], 2)
            lines.append([network, problem, ratio["Gossamer's best"], *times, least])
    return table(["network", "task", "Gossamer's best", *RIVALS, "DDP without a network"], lines)


def comparison_table(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Return modelled and measured times of a step, by network and method."""
    lines = [
        [f"{network}: {method}", number(1e3 * times["modelled"]), number(1e3 * times["measured"]), difference]
        for network, row in found.items()
        for method, times in row.items()
        for difference in [f"{times['modelled'] / times['measured'] - 1:+.0%}"]
    ]
    return table(["", "modelled, ms a step", "measured", "difference"], lines)


def whole_table(results: Mapping[str, Any]) -> str:
    """Return what whole runs took beside steps times seconds a step."""
    lines = []
    for key, end in results["whole"].items():
        problem, network, method = key.split("|")
        product = results["tasks"][problem]["networks"][network]["rows"][method]["time"]
        lines.append([f"{problem}, {network}: {method}", number(end["seconds"]), number(product)])
    return table(["", "whole run, s", "steps × seconds a step"], lines)


def mesh_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return what rows take over gloo and over the mesh."""
    lines = []
    for where, method, row in ((r, m, found) for r in rows for m, found in r["methods"].items()):
        lowest, highest = (number(ratio, 3) for ratio in row["lowest and highest"])
        both = [
            number(scale * row[over][what])
            for what, scale in (("seconds", 1e3), ("time", 1), ("cpu seconds", 1e3))
            for over in ("gloo", "mesh")
        ]
        times = f"**{number(row['times sooner'], 3)}** ({lowest} to {highest})"
        lines.append([f"{where['network']}: {where['task']}, {method}", *both, times])
    names = ("ms a step", "s to the goal", "CPU ms a step")
    columns = [f"{name}, {over}" for name in names for over in ("gloo", "mesh")]
    return table(["", *columns, "times sooner (lowest to highest)"], lines)


def main() -> None:
    record = read("slow_networks")
    for path, filled in PAGES.items():
        path.write_text(filled(path.read_text(encoding="utf-8"), record), encoding="utf-8")
    draw(record["results"], FIGURES)


if __name__ == "__main__":
    main()
