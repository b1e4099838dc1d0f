"""Heartbeats from nodes: telemetry beside the log, taken in bulk."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from fsm.liveness import LivenessPolicy
from models.errors import MessageError
from tasks.store import heartbeats

MOST_AT_ONCE = 10_000
_NODE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


class Answers(NamedTuple):
    """Who was heard, and who must introduce itself: it is not live here."""

    alive: list[str]
    introduce_yourself: list[str]


def beat(
    engine: Engine,
    node_ids: Sequence[str],
    policy: LivenessPolicy = LivenessPolicy(),
    now: datetime | None = None,
) -> Answers:
    """Take the heartbeats of many nodes at once, by the database's clock."""
    asked = _checked(node_ids)
    if not asked:
        return Answers([], [])
    with Session(engine) as session, session.begin():
        # A heartbeat lost in a crash is made good by the next one: nobody waits for the disk.
        session.execute(text("SET LOCAL synchronous_commit = off"))
        heard = heartbeats.beat(session, asked, policy.liveness, now)
    return Answers(
        [each for each in asked if each in heard], [each for each in asked if each not in heard]
    )


def _checked(node_ids: Sequence[str]) -> list[str]:
    """Each id once, in the order said."""
    if len(node_ids) > MOST_AT_ONCE:
        raise MessageError(f"{len(node_ids)} heartbeats at once", f"send at most {MOST_AT_ONCE}")
    for at, node_id in enumerate(node_ids):
        if not _NODE_ID.fullmatch(node_id):
            raise MessageError(
                f"heartbeat {at}: that is no node_id",
                "it takes 1 to 128 letters, digits, dots, colons, dashes and underscores",
            )
    return [*dict.fromkeys(node_ids)]
