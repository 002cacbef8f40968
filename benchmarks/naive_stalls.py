"""Why differences are compressed and not models: the naive way stalls, DCD and CHOCO do not.

    python -m benchmarks.naive_stalls
    python -m benchmarks.naive_stalls --draw    only draw what has been computed

Eight workers on a ring solve one consistent least-squares problem, of which each holds a part, with
4-bit QSGD. Writes docs/results/naive_stalls.json and docs/figures/naive_stalls.png.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

import gossamer
from benchmarks.record import FIGURES, read, write
from gossamer.algorithms import DCD, DPSGD, Algorithm, Choco, NaiveQuantized
from gossamer.compress import QSGD

N, ROWS, D, LR, ROUNDS, EVERY = 8, 30, 100, 0.1, 2000, 20


def problem() -> tuple[Tensor, Callable[[int, dict[str, Tensor], int], dict[str, Tensor]]]:
    rng = torch.Generator().manual_seed(0)
    solution = torch.randn(D, generator=rng, dtype=torch.float64)
    A = torch.randn(N, ROWS, D, generator=rng, dtype=torch.float64) / ROWS**0.5
    b = A @ solution

    def gradient(rank: int, parameters: dict[str, Tensor], step: int) -> dict[str, Tensor]:
        return {"x": A[rank].T @ (A[rank] @ parameters["x"].detach() - b[rank])}

    return solution, gradient


def compute() -> dict[str, Any]:
    """Return every method's distance to the solution, round after round."""
    solution, gradient = problem()
    quantizer = QSGD(4, bucket=D)
    contraction = QSGD(4, bucket=D, scale="contraction")
    methods: dict[str, Algorithm] = {
        "D-PSGD, full precision": DPSGD(),
        "naive: models in 4 bits": NaiveQuantized(quantizer),
        "DCD, 4 bits": DCD(quantizer),
        "CHOCO, 4 bits": Choco(contraction),
    }
    found: dict[str, Any] = {}
    for name, algorithm in methods.items():
        run = gossamer.Simulation(
            {"x": torch.zeros(D, dtype=torch.float64)},
            gossamer.topology.ring(N),
            algorithm,
            gradient=gradient,
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=LR),
        )
        errors = []
        for _ in range(ROUNDS // EVERY):
            run.run(EVERY)
            errors.append(float(((run.x - solution).square().sum(1).mean() / solution.square().sum()).sqrt()))
        found[name] = {"relative error": errors}
        print(
            f"{name:28} {errors[-1]:.1e} after {ROUNDS} rounds, {run.bytes_sent[0] // ROUNDS} bytes a round"
        )
    return {"rounds": list(range(EVERY, ROUNDS + 1, EVERY)), "methods": found}


def draw(results: Mapping[str, Any]) -> None:
    """Draw the distances over the rounds."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for (name, found), style in zip(results["methods"].items(), ("-", "-", "--", "-"), strict=True):
        axes.semilogy(results["rounds"], found["relative error"], style, label=name)
    axes.set_xlabel("round")
    axes.set_ylabel("distance to the solution, relative")
    axes.set_title("Compressed models stall, compressed differences do not")
    axes.grid(alpha=0.3)
    axes.legend()
    FIGURES.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURES / "naive_stalls.png", dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draw", action="store_true", help="compute nothing")
    if not parser.parse_args().draw:
        write("naive_stalls", compute())
    draw(read("naive_stalls")["results"])


if __name__ == "__main__":
    main()
