"""Carries out what registrations ask of Consul: each node is a Consul node of its own, or, in mode
`agent`, a service of an agent."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy.orm import Session

from fsm.breaker import CallOutcome
from fsm.retry import FailureKind
from tasks.effects import consul_agent
from tasks.effects.consul_chunks import Job, Sent, send
from tasks.effects.consul_client import ConsulClient
from tasks.effects.consul_entries import (
    CheckStatus,
    Malformed,
    Registration,
    Removal,
    Standing,
    node_name,
    registration,
    removal,
    set_check,
    set_node,
)
from tasks.effects.handler import Answer, Claimed, Done, Failed
from tasks.settings import ConsulMode, Settings

_ROUNDS = 3  # how often a node that changes under our hands is looked at again


class ConsulHandler:
    """Consul's side of registrations. `clock` stamps what is written, so that its age is known."""

    transactional = False

    def __init__(self, settings: Settings, clock: Callable[[], datetime]) -> None:
        self.client = ConsulClient(settings)
        self._mode = settings.consul_mode
        self._prefix = settings.consul_node_prefix
        self._clock = clock

    def perform(self, claimed: Sequence[Claimed], until: float, session: Session | None) -> Answer:
        """Removals first: they make room, and nobody waits for them to be seen."""
        outcomes: dict[UUID, Done | Failed] = {}
        removals: dict[str, Removal] = {}
        registrations: dict[str, Registration] = {}
        activations: dict[str, Removal] = {}
        for each in claimed:
            try:
                if each.kind == "consul.register":
                    registrations[str(each.intent_id)] = registration(each.payload)
                elif each.kind == "consul.deregister":
                    removals[str(each.intent_id)] = removal(each.payload)
                elif each.kind == "consul.activate":
                    activations[str(each.intent_id)] = removal(each.payload)
                else:
                    raise Malformed(f"Consul has nothing to do with {each.kind}")
            except Malformed as error:
                outcomes[each.intent_id] = Failed(FailureKind.PERMANENT, str(error))
        calls: list[CallOutcome] = []
        for found, made in (
            self._deregister(removals, until),
            self._register(registrations, until),
            self._show(_owners(activations), CheckStatus.PASSING, until),
        ):
            outcomes.update((UUID(key), outcome) for key, outcome in found.items())
            calls.extend(made)
        return Answer(outcomes, calls)

    def set_status(
        self, wanted: Mapping[str, str], status: CheckStatus, until: float
    ) -> tuple[dict[str, Done | Failed], list[CallOutcome]]:
        """Say of nodes (id → registration_id) whether they are alive. One that another
        registration wrote, or that is gone, is left alone. An agent runs its own checks."""
        owners = {node_id: (node_id, owner, "") for node_id, owner in wanted.items()}
        return self._show(owners, status, until)

    def close(self) -> None:
        self.client.close()

    def _register(
        self, entries: Mapping[str, Registration], until: float
    ) -> tuple[dict[str, Done | Failed], list[CallOutcome]]:
        now = self._clock()
        if self._mode is ConsulMode.AGENT:
            return consul_agent.register(self.client, entries, now, until)
        sent = send(
            self.client,
            [
                Job(key, set_node(self._name(entry.node_id), entry, now), entry.correlation_id)
                for key, entry in entries.items()
            ],
            until,
        )
        return settled(sent), sent.calls

    def _deregister(
        self, entries: Mapping[str, Removal], until: float
    ) -> tuple[dict[str, Done | Failed], list[CallOutcome]]:
        if self._mode is ConsulMode.AGENT:
            return consul_agent.deregister(self.client, entries, until)
        return self._change(_owners(entries), lambda standing: [standing.delete()], until)

    def _show(
        self, nodes: Mapping[str, tuple[str, str, str]], status: CheckStatus, until: float
    ) -> tuple[dict[str, Done | Failed], list[CallOutcome]]:
        if self._mode is ConsulMode.AGENT:
            return {key: Done() for key in nodes}, []
        now = self._clock()

        def check(standing: Standing) -> list[dict[str, object]]:
            service = standing.meta.get("service_id", ""), standing.meta.get("service_name", "")
            return [standing.unchanged(), set_check(standing.name, *service, status, now)]

        return self._change(nodes, check, until)

    def _change(
        self,
        nodes: Mapping[str, tuple[str, str, str]],
        change: Callable[[Standing], Sequence[Mapping[str, object]]],
        until: float,
    ) -> tuple[dict[str, Done | Failed], list[CallOutcome]]:
        """Read each node, and change it if its registration wrote it and nobody wrote it since."""
        outcomes: dict[str, Done | Failed] = {}
        calls: list[CallOutcome] = []
        left = dict(nodes)
        for _ in range(_ROUNDS):
            if not left:
                break
            read = self._read({key: (node[0], node[2]) for key, node in left.items()}, until)
            calls += read.calls
            standing = {each.name: each for each in _nodes(read)}
            jobs: list[Job] = []
            for key, (node_id, owner, correlation_id) in left.items():
                found = standing.get(self._name(node_id))
                if key in read.failed:
                    outcomes[key] = read.failed[key]
                elif "doesn't exist" in read.refused.get(key, ""):
                    outcomes[key] = Done()
                elif key in read.refused:
                    outcomes[key] = Failed(FailureKind.PERMANENT, read.refused[key])
                elif key in read.done and found is None:
                    # It is there, and Consul hides it from our token.
                    outcomes[key] = Failed(
                        FailureKind.PERMANENT, "Consul refused: the token may not read the node"
                    )
                elif found is not None and found.registration_id != owner:
                    outcomes[key] = Done()
                elif found is not None:
                    jobs.append(Job(key, change(found), correlation_id))
            sent = send(self.client, jobs, until)
            calls += sent.calls
            left = {key: left[key] for key, said in sent.refused.items() if "is stale" in said}
            outcomes |= {key: each for key, each in settled(sent).items() if key not in left}
        outcomes |= {
            key: Failed(FailureKind.TRANSIENT, "the node is being written by somebody else")
            for key in left
        }
        return outcomes, calls

    def _read(self, nodes: Mapping[str, tuple[str, str]], until: float) -> Sent:
        jobs = []
        for key, (node_id, correlation_id) in nodes.items():
            asked = {"Verb": "get", "Node": {"Node": self._name(node_id)}}
            jobs.append(Job(key, [{"Node": asked}], correlation_id))
        return send(self.client, jobs, until)

    def _name(self, node_id: str) -> str:
        return node_name(self._prefix, node_id)


def _owners(entries: Mapping[str, Removal]) -> dict[str, tuple[str, str, str]]:
    return {
        key: (entry.node_id, entry.registration_id, entry.correlation_id)
        for key, entry in entries.items()
    }


def settled(sent: Sent) -> dict[str, Done | Failed]:
    """Each job's outcome: a refusal is for good."""
    outcomes: dict[str, Done | Failed] = {key: Done() for key in sent.done}
    outcomes |= {key: Failed(FailureKind.PERMANENT, said) for key, said in sent.refused.items()}
    return outcomes | sent.failed


def _nodes(sent: Sent) -> Iterable[Standing]:
    return (Standing.read(each["Node"]) for each in sent.results if each.get("Node"))
