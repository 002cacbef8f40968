"""Runs over the mesh: all workers of one command, and workers that each have a command of their own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

import pytest

from gossamer._mesh.ask import Asker
from gossamer._mesh.keys import load_key, new_key
from gossamer._mesh.peers import Peer, Peers, read_peers, write_peers
from gossamer.runs import Config, RunFolder, simulate, train
from gossamer.runs.files import read_lines
from gossamer.runs.training.local_workers import share_of
from gossamer.tasks import Sampler
from tests.support.meshes import free_addresses
from tests.support.runs import final, same
from tests.support.small import FILE, small
from tests.support.waiting import IMPATIENT, LIMIT, wait_until

N = 3
ENDLESS = 100_000
SETTINGS = [*("--task", FILE, "--batch-size", "4", "--gamma", "0.2", "--checkpoint-every", "5"), "--quiet"]


@pytest.mark.parametrize("method", [{"algorithm": "dpsgd"}, {"compressor": "topk:0.3"}])
def test_one_command_for_all_workers_has_the_bits_of_a_simulation(tmp_path, method):
    config = small(transport="mesh", **method)
    summary = train(config, tmp_path / "mesh")
    assert summary.status == "finished"
    memory = {} if "algorithm" in method else {"memory": "replicas"}
    simulate(replace(config, transport="torch", simulated=True, options=memory), tmp_path / "simulated")
    pairs = zip(final(tmp_path / "mesh"), final(tmp_path / "simulated"), strict=True)
    for rank, (real, simulated) in enumerate(pairs):
        assert same(real["model"], simulated["model"]), f"worker {rank} differs"


class Machines:
    """Workers that are started one by one, as on machines of their own, from one folder with keys."""

    def __init__(self, folder, n):
        self.folder, self.stack = folder, ExitStack()
        self.addresses = free_addresses(n)
        self.keys = [load_key(str(new_key(f"w{i}", folder))) for i in range(n)]
        self.running = {}

    def write_peers(self, n, revoked=()):
        write_peers(self.folder / "peers.toml", Peers(tuple(self.peer(i, i in revoked) for i in range(n))))

    def peer(self, rank, revoked=False):
        return Peer(rank, self.keys[rank].name, self.addresses[rank], self.keys[rank].public, revoked)

    def start(self, rank, *words):
        self.run(rank, "--out", f"run-{rank}", *words)

    def resume(self, rank):
        self.run(rank, "--peers", "peers.toml", "--resume", f"run-{rank}", "--quiet")

    def run(self, rank, *words):
        listen = ["--listen", self.addresses[rank], "--key", f"w{rank}"]
        command = [sys.executable, "-m", "gossamer", "train", "--transport", "mesh", *listen, *words]
        environment = {**os.environ, "GOSSAMER_KEYS": str(self.folder), "OMP_NUM_THREADS": "1"}
        log = self.stack.enter_context((self.folder / f"log-{rank}").open("wb"))
        self.running[rank] = subprocess.Popen(
            command, cwd=self.folder, env=environment, stdout=log, stderr=subprocess.STDOUT
        )

    def log(self, rank):
        return " ".join((self.folder / f"log-{rank}").read_text().split())

    def newest(self, rank):
        """Return the step of a worker's last checkpoint."""
        kept = RunFolder(self.folder / f"run-{rank}").checkpoints
        return max(kept.steps(rank), default=0)

    def waits(self, rank):
        """Return whether a worker knows what it will train, and waits for the others."""
        with Asker([self.peer(rank)], self.keys[rank - 1]) as asker:
            told = asker.ask(1.0)[0].told
        return told is not None and told.settings and told.doing == "waiting"

    def end(self, rank, number):
        """Send one worker a signal; return its exit code, and what it says at once."""
        self.running[rank].send_signal(number)
        if number != signal.SIGKILL:
            wait_until(lambda: self.log(rank), IMPATIENT)
        return self.running.pop(rank).wait(LIMIT), self.log(rank)  # to unload torch takes long

    def stop(self):
        """Press Ctrl-C on every machine; return the exit codes."""
        for process in self.running.values():
            process.send_signal(signal.SIGINT)
        return self.codes()

    def codes(self):
        return {rank: process.wait(LIMIT) for rank, process in self.running.items()}


@contextmanager
def machines(folder, n):
    made = Machines(folder, n)
    with made.stack:
        try:
            yield made
        finally:
            for process in made.running.values():
                process.kill()
                process.wait()


def test_a_command_for_each_worker(tmp_path):
    with machines(tmp_path, N) as all_of_them:
        all_of_them.write_peers(N)
        for rank in range(N):
            all_of_them.start(rank, "--peers", "peers.toml", "--steps", "12", *SETTINGS)
        codes = all_of_them.codes()
        assert codes == dict.fromkeys(range(N), 0), [all_of_them.log(rank) for rank in range(N)]
    for rank in range(N):
        summary = RunFolder(tmp_path / f"run-{rank}").summary()
        assert (summary.status, summary.workers) == ("finished", N)


def test_one_that_knows_only_a_member_joins_while_the_others_train(tmp_path):
    """Its entry is added to the others' file; it takes the model and the peers from who answers."""
    with machines(tmp_path, N + 1) as all_of_them:
        all_of_them.write_peers(N)
        for rank in range(N):
            all_of_them.start(rank, "--peers", "peers.toml", "--steps", str(ENDLESS), *SETTINGS)
        wait_until(lambda: all(all_of_them.newest(rank) >= 5 for rank in range(N)))
        all_of_them.write_peers(N + 1)
        door = f"{all_of_them.keys[0].public}@{all_of_them.addresses[0]}"
        all_of_them.start(N, "--join", door, "--steps", str(ENDLESS), *SETTINGS)
        wait_until(lambda: all_of_them.newest(N) > 0)
        first = all_of_them.newest(N)
        wait_until(lambda: all(all_of_them.newest(rank) > first + 10 for rank in range(N + 1)))
        codes = all_of_them.stop()
        assert codes == dict.fromkeys(range(N + 1), 130), [all_of_them.log(rank) for rank in range(N + 1)]
    assert first > 5  # not the beginning
    assert [peer.name for peer in read_peers(tmp_path / f"run-{N}" / "peers.toml").all] == [
        f"w{i}" for i in range(N + 1)
    ]
    for rank in range(N + 1):
        (sent,) = RunFolder(tmp_path / f"run-{rank}").summary().bytes_sent or ()
        assert sent > 0


NOTING = """
from pathlib import Path
import os, torch
from gossamer.tasks import Task

def task():
    x = torch.arange(120.0)[:, None]

    def loss(model, batch):
        with Path(f"seen-{os.getpid()}").open("a") as file:
            file.writelines(f"{int(number)}\\n" for number in batch[0])
        return (model(batch[0] / 120) ** 2).mean()

    data = torch.utils.data.TensorDataset(x)
    return Task("noting", lambda: torch.nn.Linear(1, 1), data, loss, lambda model: {"accuracy": 0.0})
"""


@pytest.mark.parametrize("partition", ["iid", "iid-fixed"])
def test_beside_a_revoked_entry_each_example_is_trained_on_once(tmp_path, partition):
    """The three others have the ids 0, 2 and 3, and the shares 0, 1 and 2."""
    (tmp_path / "noting.py").write_text(NOTING)
    there = (0, 2, 3)
    with machines(tmp_path, N + 1) as all_of_them:
        all_of_them.write_peers(N + 1, revoked=[1])
        for rank in there:
            words = ["--task", "noting.py", "--steps", "10", "--batch-size", "4", "--gamma", "0.2", "--quiet"]
            all_of_them.start(rank, "--peers", "peers.toml", "--partition", partition, *words)
        codes = all_of_them.codes()
        assert codes == dict.fromkeys(there, 0), [all_of_them.log(rank) for rank in there]
    seen = [path.read_text().split() for path in tmp_path.glob("seen-*")]
    assert [len(own) for own in seen] == [40] * N
    assert sorted(int(number) for own in seen for number in own) == list(range(120))


@pytest.mark.parametrize("partition", ["iid", "iid-fixed"])
def test_who_was_added_later_has_a_whole_share_in_an_order_of_its_own(partition):
    sampler = Sampler(partition, 120, N, 4)
    founders = [0, 2, 3]
    shares = [share_of(rank, founders) for rank in (0, 2, 3, 4)]
    *theirs, added = [sampler.batches(0, share).flatten().tolist() for share in shares]
    assert set(added) == set(theirs[1])
    assert added != theirs[1]


def test_who_is_stopped_while_it_waits_ends_at_once_and_can_be_started_again(tmp_path):
    with machines(tmp_path, N) as all_of_them:
        all_of_them.write_peers(N)
        words = ["--peers", "peers.toml", "--steps", "12", *SETTINGS]
        all_of_them.start(1, *words)
        for number in (signal.SIGINT, signal.SIGTERM):
            all_of_them.start(0, *words)
            wait_until(lambda: all_of_them.waits(0) and all_of_them.waits(1))
            said = "Stopped before the first step. The same command starts again."
            assert all_of_them.end(0, number) == (130, said)
            assert not (tmp_path / "run-0").exists()
        for rank in (0, 2):
            all_of_them.start(rank, *words)
        codes = all_of_them.codes()
        assert codes == dict.fromkeys(range(N), 0), [all_of_them.log(rank) for rank in range(N)]


def test_who_was_killed_while_it_waited_can_be_started_again(tmp_path):
    with machines(tmp_path, 2) as both:
        both.write_peers(2)
        for _ in range(2):
            both.start(0, "--peers", "peers.toml", *SETTINGS)
            wait_until(lambda: both.waits(0))
            assert both.end(0, signal.SIGKILL) == (-signal.SIGKILL, "")


def test_what_a_start_has_written_goes_with_it(tmp_path):
    """Also the peers that a member has told."""
    path = tmp_path / "new" / "run"
    with suppress(KeyboardInterrupt), RunFolder(path).claimed():
        (path / "peers.toml").touch()
        with pytest.raises(ValueError, match="another process"), RunFolder(path).held():
            pass
        raise KeyboardInterrupt
    assert not (tmp_path / "new").exists()


def test_without_a_checkpoint_a_run_is_resumed_as_if_it_were_new(tmp_path):
    """It joins those that train, and waits where nobody does."""

    def forget(rank):
        for path in (tmp_path / f"run-{rank}/checkpoints", tmp_path / f"run-{rank}/metrics"):
            shutil.rmtree(path)

    with machines(tmp_path, N) as all_of_them:
        all_of_them.write_peers(N)
        for rank in range(N):
            words = ["--peers", "peers.toml", "--steps", str(ENDLESS), "--log-every", "1"]
            all_of_them.start(rank, *words, *SETTINGS)
        wait_until(lambda: all(all_of_them.newest(rank) >= 5 for rank in range(N)))
        all_of_them.end(2, signal.SIGKILL)
        forget(2)
        all_of_them.resume(2)
        wait_until(lambda: all_of_them.newest(2) > 0)
        assert read_lines(tmp_path / "run-2/metrics/worker-2.jsonl")[0]["step"] > 5
        codes = all_of_them.stop()
        assert codes == dict.fromkeys(range(N), 130), [all_of_them.log(rank) for rank in range(N)]
        forget(0)
        all_of_them.resume(0)
        wait_until(lambda: all_of_them.waits(0))
        said = "Stopped. Resume with: gossamer train --resume run-0"
        assert all_of_them.end(0, signal.SIGTERM) == (130, said)
    assert RunFolder(tmp_path / "run-0").status() == "interrupted"  # as before


def test_a_worker_that_diverges_says_so(tmp_path):
    with machines(tmp_path, 2) as both:
        both.write_peers(2)
        for rank in range(2):
            both.start(rank, "--peers", "peers.toml", "--steps", "50", "--lr", "1e6", *SETTINGS)
        assert both.codes() == {0: 1, 1: 1}
        assert "Lower the learning rate" in both.log(0)
    for rank in range(2):
        assert RunFolder(tmp_path / f"run-{rank}").status() == "diverged"


def test_a_sum_of_replicas_cannot_follow():
    with pytest.raises(ValueError, match="memory='sum' cannot follow edges"):
        Config(workers=N, transport="mesh", options={"memory": "sum"})
