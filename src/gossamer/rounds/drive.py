"""All workers' rounds in one process, phase by phase."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gossamer.rounds.phase import Mail, Post, Round


def advance(r: Round, inbox: Mail | None) -> Post | None:
    """Deliver the inbox (None starts the round) and return the next phase, or None at the end."""
    try:
        return r.send(inbox)  # type: ignore[arg-type]  # a generator starts with None
    except StopIteration:
        return None


def lockstep(rounds: Sequence[Round], watch: Callable[[Sequence[Post]], None] | None = None) -> list[int]:
    """Run one round of every worker and return the bytes each has sent.

    `watch` sees every phase, as what each worker posts, before it is delivered.
    """
    sent = [0] * len(rounds)
    posts = [advance(r, None) for r in rounds]
    while any(post is not None for post in posts):
        present = [post for post in posts if post is not None]
        assert len(present) == len(posts), "all workers' rounds have the same number of phases"
        if watch is not None:
            watch(present)
        for rank, post in enumerate(present):
            sent[rank] += sum(message.numel() for message in post.send.values())
        inboxes = [_inbox(rank, present) for rank in range(len(rounds))]
        posts = [advance(r, inbox) for r, inbox in zip(rounds, inboxes, strict=True)]
    return sent


def _inbox(rank: int, posts: Sequence[Post]) -> Mail:
    """Collect what was sent to a worker, in rank order, as copies: a network has no references."""
    inbox = {sender: post.send[rank].clone() for sender, post in enumerate(posts) if rank in post.send}
    lengths = {sender: message.numel() for sender, message in inbox.items()}
    expected = posts[rank].expect
    assert lengths == expected, f"worker {rank} expects {expected} bytes, {lengths} were sent"
    return inbox
