"""Every contract that was ever run: a replay needs the very one an event was applied with."""

from collections.abc import Iterable

from sqlalchemy import text
from sqlalchemy.orm import Session

from fsm.library import Loaded

_KEEP = text(
    """
    INSERT INTO contracts (content_hash, machine, version, document)
    SELECT * FROM unnest(CAST(:hashes AS text[]), CAST(:machines AS text[]),
                         CAST(:versions AS text[]), CAST(:documents AS text[]))
    ON CONFLICT DO NOTHING
    """
)
_DOCUMENTS = text(
    "SELECT content_hash, document FROM contracts"
    " WHERE content_hash = ANY (CAST(:hashes AS text[]))"
)
_FORMER = text(
    "SELECT content_hash, document FROM contracts"
    " WHERE NOT content_hash = ANY (CAST(:hashes AS text[])) ORDER BY loaded_at, content_hash"
)


def documents(session: Session, hashes: Iterable[str]) -> dict[str, str]:
    """The text of each of these contracts that was ever run."""
    rows = session.execute(_DOCUMENTS, {"hashes": [*hashes]})
    return {found: document for found, document in rows}


def keep(session: Session, machines: Iterable[Loaded]) -> None:
    """Remember these contracts by their hash."""
    contracts, documents = zip(*machines, strict=True)
    session.execute(
        _KEEP,
        {
            "hashes": [contract.content_hash for contract in contracts],
            "machines": [contract.name for contract in contracts],
            "versions": [contract.version for contract in contracts],
            "documents": [*documents],
        },
    )


def former(session: Session, current: Iterable[Loaded]) -> dict[str, str]:
    """The documents of contracts that ran before and are not among the current ones."""
    hashes = [contract.content_hash for contract, _ in current]
    return {found: document for found, document in session.execute(_FORMER, {"hashes": hashes})}
