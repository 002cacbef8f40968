"""The tests as they run on other processors, with other threads, and on a busy machine.

    python -m tests.everywhere                        all variants, one after the other
    python -m tests.everywhere avx2 busy              some of them
    python -m tests.everywhere portable --quick       the rest of the words is for pytest

What a processor cannot do can be switched off: torch, oneDNN, MKL and OpenBLAS then take the kernels of an
older one, whose sums round otherwise. The names are those of x86.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLAIN = {"OMP_NUM_THREADS": "1"}
VARIANTS: dict[str, dict[str, str]] = {
    "plain": PLAIN,
    "portable": PLAIN
    | {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "OPENBLAS_CORETYPE": "Nehalem",
    },
    "avx2": PLAIN
    | {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
    },
    "threads": {"OMP_NUM_THREADS": "2"},
    "busy": PLAIN,
}
BUSY = 4  # processes that do nothing but keep the processor busy
COUNTS = ("passed", "failed", "errors?", "skipped")


@contextmanager
def company(count: int) -> Iterator[None]:
    """Keep so many other processes busy for a while."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def run(variant: str, words: list[str]) -> tuple[int, str]:
    """Run the tests and return pytest's code and what it counted."""
    cores = os.cpu_count() or 1
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--numprocesses",
        str(cores + 1),
        "--dist",
        "worksteal",
        *words,
    ]
    began, last = time.monotonic(), ""
    with (
        company(BUSY if variant == "busy" else 0),
        subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **VARIANTS[variant]}, stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        for line in process.stdout or ():
            sys.stdout.write(line)
            sys.stdout.flush()
            last = line if re.search(r"\d+ (passed|failed|error)", line) else last
    counts = (re.search(rf"(\d+) {what}", last) for what in COUNTS)
    row = "".join(f"{found[1] if found else 0:>9}" for found in counts)
    return process.returncode, f"{variant:10}{row}{time.monotonic() - began:9.0f}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the tests as they run elsewhere.")
    parser.add_argument("variants", nargs="*", metavar="variant", help=", ".join(VARIANTS))
    given, words = parser.parse_known_args()
    unknown = [name for name in given.variants if name not in VARIANTS]
    if unknown:
        parser.error(f"there is no variant {unknown[0]}, but {', '.join(VARIANTS)}")
    outcomes = [run(variant, words) for variant in given.variants or VARIANTS]
    titles = "".join(f"{name:>9}" for name in ("passed", "failed", "errors", "skipped", "seconds"))
    sys.stdout.write("\n".join(["", f"{'':10}{titles}", *(row for _, row in outcomes), ""]))
    return max(code for code, _ in outcomes)


if __name__ == "__main__":
    sys.exit(main())
