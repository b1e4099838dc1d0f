"""Messages that cannot be folded: put to dead letters, alone, with all that is known of them."""

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from tasks.doorbell import Room
from tasks.store import dead_letters, entities, inbox, processed
from tasks.store.processed import DEAD_LETTER

# Data, constraints and limits. Whatever else the database says, it would say to any message.
_OF_THE_MESSAGE = ("22", "23", "54")


def refuses(error: DBAPIError) -> bool:
    """Whether the database refused a message, rather than being unable to take any."""
    code: str | None = getattr(error.orig, "pgcode", None)
    return code is not None and code.startswith(_OF_THE_MESSAGE)


def count_attempt(session: Session, room: Room, most: int) -> bool | None:
    """Count the first message's attempt before it is touched. One that has killed its worker too
    often is put away and True is given; None when nothing waits."""
    for first in inbox.take(session, *room, 1):
        attempts = inbox.begin(session, *room, first.position)
        if attempts <= most:
            return False
        why = f"its worker died {attempts - 1} times while this message was folded"
        bury(session, room, first, "killed its worker", why)
        return True
    return None


def bury_first(session: Session, room: Room, reason: str, error: str) -> int:
    """Put the first message away."""
    buried = inbox.take(session, *room, 1)
    for first in buried:
        bury(session, room, first, reason, error)
    return len(buried)


def bury(session: Session, room: Room, waiting: inbox.Waiting, reason: str, error: str) -> None:
    message = waiting.envelope
    stored = entities.read(session, [message.entity_id]).get(message.entity_id, {})
    letter = dead_letters.DeadLetter(room[0], message, stored, reason, error, waiting.attempts)
    dead_letters.put(session, [letter])
    if not processed.known(session, [message.message_id]):
        processed.record(session, {message.message_id: DEAD_LETTER})
    inbox.remove(session, *room, [waiting.position])
