"""Consul's transactions: as much in one as Consul takes, and only what it refuses fails."""

import json
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fsm.breaker import CallOutcome
from fsm.retry import FailureKind
from tasks.effects.consul_client import ConsulClient, Reply
from tasks.effects.handler import Failed

MOST_OPERATIONS = 64
LARGEST_CHUNK = 400_000


@dataclass(frozen=True)
class Job:
    """Operations that belong together: all of them are done, or none."""

    key: str
    operations: Sequence[Mapping[str, Any]]
    correlation_id: str = ""
    encoded: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        text = ",".join(json.dumps(each, separators=(",", ":")) for each in self.operations)
        object.__setattr__(self, "encoded", text.encode())


@dataclass
class Sent:
    """What became of each job, by its key. A job that is nowhere here had no time."""

    done: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)
    failed: dict[str, Failed] = field(default_factory=dict)
    results: list[Mapping[str, Any]] = field(default_factory=list)
    calls: list[CallOutcome] = field(default_factory=list)


def send(client: ConsulClient, jobs: Sequence[Job], until: float) -> Sent:
    """Carry them out chunk by chunk. A chunk is atomic: what Consul blames is taken out and the
    rest is sent again; if it blames nothing, the chunk is halved until the guilty one is alone.
    Once Consul gives no answer at all, the rest is left for another time."""
    sent = Sent()
    waiting = deque(_chunks(jobs, sent))
    while waiting and time.monotonic() < until:
        chunk = waiting.popleft()
        reply = client.ask(
            "put",
            "/v1/txn",
            until,
            body=b"[" + b",".join(job.encoded for job in chunk) + b"]",
            correlation_ids=[job.correlation_id for job in chunk if job.correlation_id],
        )
        if reply.outcome is CallOutcome.SUCCESS and not _is_transaction(reply.body):
            reply = Reply(
                CallOutcome.FAILURE, FailureKind.UNKNOWN, "Consul's answer is no transaction's", 200
            )
        sent.calls.append(reply.outcome)
        if reply.outcome is CallOutcome.SUCCESS:
            sent.done.update(job.key for job in chunk)
            sent.results.extend(reply.body["Results"] or ())
        elif reply.outcome is CallOutcome.REFUSED and reply.kind is FailureKind.PERMANENT:
            _sort_out(chunk, reply, sent, waiting)
        else:
            sent.failed.update((job.key, Failed(reply.kind, reply.said)) for job in chunk)
            if reply.status is None:
                break
    return sent


def _chunks(jobs: Sequence[Job], sent: Sent) -> list[list[Job]]:
    chunks: list[list[Job]] = []
    operations = size = 0
    for job in jobs:
        if len(job.operations) > MOST_OPERATIONS or len(job.encoded) + 2 > LARGEST_CHUNK:
            sent.refused[job.key] = "too large for a transaction of Consul's"
            continue
        operations += len(job.operations)
        size += len(job.encoded) + 1
        if not chunks or operations > MOST_OPERATIONS or size + 1 > LARGEST_CHUNK:
            chunks.append([])
            operations, size = len(job.operations), len(job.encoded) + 1
        chunks[-1].append(job)
    return chunks


def _sort_out(chunk: list[Job], reply: Reply, sent: Sent, waiting: deque[list[Job]]) -> None:
    blamed = _blamed(chunk, reply.body) if reply.status == 409 else {}
    if blamed:
        sent.refused |= blamed
        if rest := [job for job in chunk if job.key not in blamed]:
            waiting.appendleft(rest)
    elif len(chunk) == 1 or "ACL not found" in reply.said:
        # A token that Consul does not know is refused for every chunk alike.
        sent.refused.update((job.key, reply.said) for job in chunk)
    else:
        middle = len(chunk) // 2
        waiting.extendleft((chunk[middle:], chunk[:middle]))


def _blamed(chunk: Sequence[Job], body: Any) -> dict[str, str]:
    """The jobs whose operations Consul names, each with the first thing it says about it."""
    owners = [job.key for job in chunk for _ in job.operations]
    blamed: dict[str, str] = {}
    errors = body.get("Errors") if isinstance(body, dict) else None
    for error in errors if isinstance(errors, list) else ():
        index = error.get("OpIndex") if isinstance(error, dict) else None
        if isinstance(index, int) and 0 <= index < len(owners):
            said = " ".join(str(error.get("What")).split())[:200]
            blamed.setdefault(owners[index], f"Consul refused: {said}")
    return blamed


def _is_transaction(body: Any) -> bool:
    return (
        isinstance(body, dict)
        and ((results := body.get("Results", ())) is None or isinstance(results, list))
        and all(isinstance(each, dict) for each in results or ())
        and "Results" in body
    )
