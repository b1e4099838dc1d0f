"""Every service that effects reach, the kinds of intents it takes, and how patient we are."""

from collections.abc import Iterable, Mapping
from datetime import timedelta

from fsm.analysis import intent_kinds
from fsm.breaker import BreakerPolicy
from fsm.contract import Contract
from fsm.retry import RetryPolicy
from models.errors import ConfigurationError
from tasks.effects.handler import Handler, Kind, Service

POSTGRES = "postgres"
CONSUL = "consul"
INLINE = frozenset({POSTGRES})
"""Services whose intents the drain that asked for them carries out itself."""

_RETRY = RetryPolicy(
    base=timedelta(milliseconds=200), factor=2, cap=timedelta(seconds=5), attempts=5
)
_BREAKER = BreakerPolicy(threshold=5, reset_timeout=timedelta(seconds=10))
_EVENTS = "registration.events"

KINDS = (
    Kind(
        "postgres.upsert_registration",
        f"{_EVENTS}.PostgresUpsertSucceeded",
        f"{_EVENTS}.PostgresUpsertFailed",
        flag="postgres_applied",
        error_field="postgres_error",
        inverse="postgres.delete_registration",
    ),
    Kind(
        "postgres.delete_registration",
        f"{_EVENTS}.PostgresDeleteSucceeded",
        f"{_EVENTS}.PostgresDeleteFailed",
        error_field="postgres_error",
        inverse="postgres.upsert_registration",
        removal=True,
    ),
    Kind(
        "consul.register",
        f"{_EVENTS}.ConsulRegisterSucceeded",
        f"{_EVENTS}.ConsulRegisterFailed",
        flag="consul_applied",
        error_field="consul_error",
        inverse="consul.deregister",
    ),
    Kind(
        "consul.deregister",
        f"{_EVENTS}.ConsulDeregisterSucceeded",
        f"{_EVENTS}.ConsulDeregisterFailed",
        error_field="consul_error",
        inverse="consul.register",
        removal=True,
    ),
    Kind("consul.activate"),
)


def services(postgres: Handler, consul: Handler | None) -> Mapping[str, Service]:
    """The services by name; without a Consul its intents wait."""
    made = [
        Service(POSTGRES, postgres, _kinds(POSTGRES), _RETRY, _BREAKER, batch=500, lease_seconds=20)
    ]
    if consul is not None:
        made.append(
            Service(
                CONSUL,
                consul,
                _kinds(CONSUL),
                _RETRY,
                _BREAKER,
                batch=168,
                lease_seconds=20,
                rechecked=True,
            )
        )
    return {each.name: each for each in made}


def refuse_unhandled(contracts: Iterable[Contract]) -> None:
    """An intent that nobody carries out would wait for ever: nothing starts with one."""
    handled = {kind.name for kind in KINDS}
    wrong = [
        f"machine {contract.name} emits {kind}, which no effect handles"
        for contract in contracts
        for kind in sorted(intent_kinds(contract) - handled)
    ]
    if wrong:
        raise ConfigurationError(
            "; ".join(wrong), f"this version carries out {', '.join(sorted(handled))}"
        )


def _kinds(service: str) -> tuple[Kind, ...]:
    return tuple(each for each in KINDS if each.name.startswith(f"{service}."))
