"""The table of cases: every compressor and every algorithm is one row, and all tests read it here."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from gossamer.algorithms import (
    DCD,
    DPSGD,
    ECD,
    Algorithm,
    AllReduce,
    Choco,
    DeepSqueeze,
    NaiveQuantized,
    PowerGossip,
)
from gossamer.compress import QSGD, Cast, Compressor, Identity, LowRank, RandomK, Sign, Split, TopK
from gossamer.errors import TheoryWarning

COMPRESSORS: dict[str, Compressor] = {
    "identity": Identity(),
    "fp16": Cast("fp16"),
    "bf16": Cast("bf16"),
    "fp8": Cast("fp8"),
    "int8": Cast("int8"),
    "topk": TopK(0.25),
    "topk-half": TopK(0.5),
    "topk-sparse": TopK(0.05),
    "topk-raw": TopK(0.25, raw="vectors"),
    "topk-fp16": TopK(0.25, Cast("fp16")),
    "topk-bf16": TopK(0.25, Cast("bf16")),
    "topk-int8": TopK(0.25, Cast("int8")),
    "topk-qsgd": TopK(0.25, QSGD(4)),
    "randomk": RandomK(0.5),
    "randomk-scaled": RandomK(0.5, scaled=True),
    "randomk-fp16": RandomK(0.5, Cast("fp16")),
    "randomk-qsgd": RandomK(0.5, QSGD(6), scaled=True),
    "sign": Sign(),
    "qsgd-1bit": QSGD(1, bucket=16),
    "qsgd-2bit": QSGD(2, bucket=16),
    "qsgd-4bit": QSGD(4, bucket=64),
    "qsgd-8bit": QSGD(8),
    "qsgd-l2": QSGD(5, bucket=64, norm="l2"),
    "qsgd-contraction": QSGD(3, bucket=32, scale="contraction"),
    "lowrank-1": LowRank(1),
    "lowrank-2": LowRank(2, iterations=2),
    "split": Split({"bias": Cast("fp16"), "conv*": RandomK(0.5), "*": TopK(0.25)}),
}


def quiet(make: Callable[[], Algorithm]) -> Algorithm:
    """Build an algorithm whose theory does not cover the compressor, which these tests know."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TheoryWarning)
        return make()


# Algorithms that take a compressor, each made from one.
COMPRESSED: dict[str, Callable[[Compressor], Algorithm]] = {
    "allreduce-quantized": lambda c: quiet(lambda: AllReduce(c)),
    "naive": lambda c: quiet(lambda: NaiveQuantized(c)),
    "dcd": lambda c: quiet(lambda: DCD(c)),
    "ecd": lambda c: quiet(lambda: ECD(c)),
    "choco": lambda c: quiet(lambda: Choco(c, gamma=0.3)),
    "choco-zero": lambda c: quiet(lambda: Choco(c, gamma=0.3, x_hat="zero")),
    "choco-overlapped": lambda c: quiet(lambda: Choco(c, gamma=0.3, order="combine-then-adapt")),
    "deepsqueeze": lambda c: quiet(lambda: DeepSqueeze(c, gamma=0.1)),
}

# Algorithms that take none.
PLAIN: dict[str, Algorithm] = {
    "allreduce": AllReduce(),
    "dpsgd": DPSGD(),
    "dpsgd-adapt-first": DPSGD("adapt-then-combine"),
    "dpsgd-gamma": DPSGD(gamma=0.5),
    "dpsgd-over": DPSGD("adapt-then-combine", gamma=1.3),
    "powergossip": PowerGossip(),
    "powergossip-full": PowerGossip(rank=8),
    "powergossip-2": PowerGossip(rank=2, sub_steps=2),
    "powergossip-random": PowerGossip(warm=False),
    "powergossip-overlapped": PowerGossip(order="combine-then-adapt", sub_steps=3),
}
