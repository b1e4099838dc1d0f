"""Intents carried out on a real PostgreSQL and a real Consul: once, in order, with patience."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from sqlalchemy.orm import Session

from fsm.breaker import BreakerPolicy, CallOutcome
from fsm.contract_yaml import load_contract
from fsm.library import all_machines
from fsm.retry import FailureKind, RetryPolicy
from models.envelope import Envelope
from models.errors import ConfigurationError
from models.messages.effect_results import REMOVALS
from models.messages.runtime import RuntimeTick
from tasks.dead_letters import replay
from tasks.effects.execute import Effects
from tasks.effects.handler import Answer, Claimed, Done, Failed, Handler, Service
from tasks.effects.postgres import PostgresHandler
from tasks.effects.services import KINDS, refuse_unhandled, services
from tasks.rounds import answer, serve
from tasks.settings import Settings
from tasks.ticks import run_tick
from tests.runtime_kit import PARTITIONS, Kit, kit_of

NODE = {
    "deployment_id": "d1",
    "environment": "prod",
    "network_id": "net",
    "consul_service_name": "svc",
    "postgres_record": {"role": "web"},
}


@pytest.fixture
def kit(settings: Settings) -> Iterator[Kit]:
    yield from kit_of(settings)


def introduced(node_id: str) -> Envelope:
    offer = NODE | {"node_id": node_id, "consul_service_id": f"svc-{node_id}"}
    return said(node_id, "events.NodeIntrospected", offer)


def said(node_id: str, name: str, payload: dict[str, Any]) -> Envelope:
    return Envelope(
        message_id=uuid4(),
        correlation_id=uuid4(),
        causation_id=None,
        emitted_at=datetime.now(UTC),
        entity_id=node_id,
        message_type=f"registration.{name}",
        payload=payload,
    )


@dataclass
class Scripted:
    """Plays a service's faults: each call is answered as the script says, then all is well."""

    script: list[Callable[[Sequence[Claimed]], Answer]] = field(default_factory=list)
    asked: list[list[Claimed]] = field(default_factory=list)
    transactional = False

    def perform(self, claimed: Sequence[Claimed], until: float, session: Session | None) -> Answer:
        self.asked.append([*claimed])
        if self.script:
            return self.script.pop(0)(claimed)
        return done(claimed)


def failing(kind: FailureKind, call: CallOutcome) -> Callable[[Sequence[Claimed]], Answer]:
    return lambda claimed: Answer(
        {each.intent_id: Failed(kind, "no luck") for each in claimed}, (call,)
    )


def done(claimed: Sequence[Claimed]) -> Answer:
    return Answer({each.intent_id: Done() for each in claimed}, (CallOutcome.SUCCESS,))


UNREACHED = failing(FailureKind.UNKNOWN, CallOutcome.FAILURE)
REFUSED = failing(FailureKind.PERMANENT, CallOutcome.REFUSED)


@dataclass
class World:
    """The roll call with a scripted Consul and a clock of the test's own."""

    kit: Kit
    consul: Scripted
    effects: Effects
    ahead: timedelta = timedelta(0)

    def pass_by(self, seconds: float) -> None:
        self.ahead += timedelta(seconds=seconds)

    def fold(self) -> None:
        for room in range(PARTITIONS):
            answer(self.kit.runtime, self.effects, self.kit.process.doorbell, "registration", room)

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.fold()
            self.effects.run("consul")
            self.fold()

    def state(self, node_id: str = "n1") -> str:
        return self.kit.states("registration")[node_id]


def world_of(kit: Kit, postgres: Handler | None = None, **changes: Any) -> World:
    consul = Scripted()
    made: list[World] = []

    def clock() -> datetime:
        return datetime.now(UTC) + made[0].ahead

    known = dict(services(postgres or PostgresHandler(), consul))
    known["consul"] = replace(known["consul"], **changes)
    effects = Effects(kit.engine, known, lambda text: text, lambda: 0.5, clock)
    made.append(World(kit, consul, effects))
    return made[0]


def test_a_node_is_registered_in_postgres_and_then_in_consul(kit: Kit) -> None:
    world = world_of(kit)
    kit.submit(introduced("n1"))
    world.turn()
    assert world.state() == "registered"
    rows = kit.sql("SELECT node_id, status, environment, generation FROM node_registrations")
    assert rows == [("n1", "registered", "prod", 1)]
    assert [each.kind for (each,) in world.consul.asked] == ["consul.register"]
    assert kit.count("intents") == 0
    statuses = kit.sql("SELECT kind, status FROM effect_ledger ORDER BY kind")
    assert statuses == [
        ("consul.register", "succeeded"),
        ("postgres.upsert_registration", "succeeded"),
    ]


def test_leaving_takes_both_away_and_is_complete_when_both_are_gone(kit: Kit) -> None:
    world = world_of(kit)
    kit.submit(introduced("n1"))
    world.turn()
    kit.submit(said("n1", "commands.DeregisterNodeRequested", {"node_id": "n1"}))
    world.fold()
    assert (world.state(), kit.count("node_records")) == ("deregistering", 0)
    world.turn()
    assert world.state() == "deregistered"
    statuses = kit.sql("SELECT kind, status FROM effect_ledger ORDER BY kind")
    assert dict(statuses) == {
        "consul.register": "undone",
        "consul.deregister": "succeeded",
        "postgres.upsert_registration": "undone",
        "postgres.delete_registration": "succeeded",
    }


def test_a_removal_that_was_given_up_keeps_the_other_from_completing(kit: Kit) -> None:
    """What Consul still holds is not spoken for by PostgreSQL; a replay of the letter is."""
    postgres = Scripted([done, UNREACHED])
    world = world_of(kit, postgres)
    kit.submit(introduced("n1"))
    world.turn()
    assert world.state() == "registered"
    world.consul.script = [REFUSED]
    kit.submit(said("n1", "commands.DeregisterNodeRequested", {"node_id": "n1"}))
    world.turn()
    ((letter, kind),) = kit.sql("SELECT dead_letter_id, kind FROM dead_letters")
    assert kind == "consul.deregister"
    world.pass_by(1)
    assert world.effects.run("postgres").done == 1
    world.fold()
    assert world.state() == "deregistering"
    (fate,) = replay(kit.process, [letter])
    assert fate.done
    world.turn()
    assert world.state() == "deregistered"
    assert kit.sql("SELECT closed_as FROM dead_letters") == [("replayed",)]


def test_the_removals_of_the_messages_are_those_of_the_effects() -> None:
    told = {name for kind in KINDS if kind.removal for name in (kind.succeeded, kind.failed)}
    assert told == {each.message_type for each in REMOVALS}


def test_a_failure_is_tried_again_later_and_its_history_is_kept(kit: Kit) -> None:
    slow = RetryPolicy(timedelta(seconds=4), 2, timedelta(seconds=5), attempts=5)
    world = world_of(kit, retry=slow)
    world.consul.script = [UNREACHED]
    kit.submit(introduced("n1"))
    world.turn()
    assert world.state() == "registering_consul"
    ((attempt, tries, history, leased),) = kit.sql(
        "SELECT attempt, tries, json_array_length(history), leased_until IS NOT NULL FROM intents"
    )
    assert (attempt, tries, history, leased) == (1, 1, 1, False)
    world.turn()
    assert world.state() == "registering_consul"  # not due yet
    world.pass_by(3)
    world.turn()
    assert world.state() == "registered"


def test_a_permanent_refusal_is_not_tried_again_and_is_a_dead_letter(kit: Kit) -> None:
    world = world_of(kit)
    world.consul.script = [REFUSED]
    kit.submit(introduced("n1"))
    world.turn()
    assert world.state() == "partial_registered"
    rows = kit.sql("SELECT kind, reason, error, attempts, closed_as FROM dead_letters")
    assert rows == [("consul.register", "permanent_error", "no luck", 1, None)]


ONCE = RetryPolicy(timedelta(seconds=1), 2, timedelta(seconds=1), attempts=1)
PATIENT = BreakerPolicy(threshold=1000, reset_timeout=timedelta(seconds=10))


def exhaust(world: World) -> None:
    """Consul fails, three retries fail, and the machine gives up."""
    world.kit.submit(introduced("n1"))
    world.turn()
    for _ in range(3):
        assert world.state() == "partial_registered"
        retry = {"machine": "registration", "trigger": "RETRY", "data": {}}
        world.kit.submit(said("n1", "commands.PullTrigger", retry))
        world.turn()
    assert world.state() == "partial_registered"
    world.kit.feed(said("n1", "events.NodeRegistrationRetriesExhausted", {}))
    world.fold()
    assert world.state() == "failed"


def test_a_machine_that_gives_up_leaves_a_letter_of_its_last_intent(kit: Kit) -> None:
    """Promise 8: retries that are used up end in the dead-letter queue, and only once."""
    world = world_of(kit, retry=ONCE, breaker=PATIENT)
    world.consul.script = [UNREACHED] * 4
    exhaust(world)
    ((kind, reason, error, history, correlation, intent, payload),) = kit.sql(
        "SELECT kind, reason, error, history, CAST(correlation_id AS text),"
        " CAST(message_id AS text), envelope -> 'payload' FROM dead_letters"
    )
    assert (kind, reason, error) == ("consul.register", "machine_gave_up", "no luck")
    assert [(each["attempt"], each["error"]) for each in history] == [(1, "no luck")]
    ((last,),) = world.consul.asked[-1:]
    assert (intent, correlation) == (str(last.intent_id), str(last.correlation_id))
    assert payload == last.payload
    assert kit.count("dead_letters") == 1


def test_a_machine_that_may_still_retry_leaves_no_letter(kit: Kit) -> None:
    world = world_of(kit, retry=ONCE, breaker=PATIENT)
    world.consul.script = [UNREACHED]
    kit.submit(introduced("n1"))
    world.turn()
    assert (world.state(), kit.count("dead_letters")) == ("partial_registered", 0)


def test_a_refusal_is_mended_and_its_letter_registers_a_new_generation(kit: Kit) -> None:
    """Consul refuses us until an operator mends the token and replays the one letter."""
    world = world_of(kit, breaker=PATIENT)
    world.consul.script = [REFUSED] * 4
    exhaust(world)
    rows = kit.sql("SELECT dead_letter_id, kind, reason FROM dead_letters")
    assert [row[1:] for row in rows] == [("consul.register", "permanent_error")]
    mended = world_of(kit)
    (fate,) = replay(kit.process, [rows[0][0]])
    assert fate.done
    mended.turn(3)
    assert mended.state() == "registered"
    assert kit.sql("SELECT generation FROM node_registrations") == [(2,)]
    assert kit.sql("SELECT closed_as FROM dead_letters") == [("replayed",)]


def test_an_open_circuit_burns_nothing(kit: Kit) -> None:
    """Promise 8: an outage opens the circuit, and no intent uses up its tries on it."""
    breaker = BreakerPolicy(threshold=2, reset_timeout=timedelta(seconds=10))
    world = world_of(kit, breaker=breaker)
    world.consul.script = [UNREACHED] * 40
    kit.submit(introduced("n1"))
    world.turn()
    world.pass_by(1)
    world.turn()
    assert kit.sql("SELECT state, failures FROM circuits WHERE service = 'consul'") == [("OPEN", 2)]
    for _ in range(20):
        world.pass_by(5)
        world.turn()
    ((attempt, tries),) = kit.sql("SELECT attempt, tries FROM intents")
    assert tries == 1
    assert 5 <= attempt <= 15  # one probe each time the circuit lets one through
    assert world.state() == "registering_consul"
    world.consul.script = []
    world.pass_by(11)
    world.turn()
    assert world.state() == "registered"
    assert kit.sql("SELECT state FROM circuits") == [("CLOSED",)]


def test_one_probe_goes_through_a_half_open_circuit(kit: Kit) -> None:
    breaker = BreakerPolicy(threshold=1, reset_timeout=timedelta(seconds=10))
    world = world_of(kit, breaker=breaker)
    world.consul.script = [UNREACHED]
    kit.submit(*(introduced(f"n{number}") for number in range(5)))
    world.turn()
    world.pass_by(11)
    before = len(world.consul.asked)
    world.effects.run("consul", seconds=0)
    assert [len(each) for each in world.consul.asked[before:]] == [1]
    world.turn()
    assert set(kit.states("registration").values()) == {"registered"}


def test_what_is_dropped_does_not_use_up_the_probe(kit: Kit) -> None:
    """Promise 9: a service that is back is used, however much nobody waits for any more."""
    breaker = BreakerPolicy(threshold=1, reset_timeout=timedelta(seconds=10))
    world = world_of(kit, breaker=breaker)
    world.consul.script = [UNREACHED]
    kit.submit(*(introduced(f"n{number}") for number in range(3)))
    world.turn()
    pulled = {"machine": "registration", "trigger": "FATAL_ERROR", "data": {}}
    kit.feed(*(said(node_id, "events.TriggerPulled", pulled) for node_id in ("n0", "n1")))
    world.fold()
    kit.sql("UPDATE intents SET due_at = due_at + interval '1 s' WHERE entity_id = 'n2'")
    world.pass_by(12)
    world.turn()
    assert world.state("n2") == "registered"
    assert kit.sql("SELECT state FROM circuits WHERE service = 'consul'") == [("CLOSED",)]


def test_a_lost_lease_is_taken_over_and_the_loser_settles_nothing(kit: Kit) -> None:
    world = world_of(kit)
    kit.submit(introduced("n1"))
    world.fold()

    def frozen(claimed: Sequence[Claimed]) -> Answer:
        world.pass_by(60)
        assert world.effects.run("consul", seconds=0).done == 1
        failed = Failed(FailureKind.PERMANENT, "too late")
        return Answer({each.intent_id: failed for each in claimed}, (CallOutcome.SUCCESS,))

    world.consul.script = [frozen]
    ran = world.effects.run("consul", seconds=0)
    assert (ran.done, ran.failed, ran.lost) == (0, 0, 1)
    world.fold()
    assert world.state() == "registered"
    assert kit.count("dead_letters") == 0
    assert kit.sql("SELECT node_id FROM consul_rechecks") == [("n1",)]


def test_what_the_machine_no_longer_waits_for_is_cancelled(kit: Kit) -> None:
    world = world_of(kit)
    world.consul.script = [UNREACHED]
    kit.submit(introduced("n1"))
    world.turn()
    pulled = {"machine": "registration", "trigger": "FATAL_ERROR", "data": {}}
    kit.feed(said("n1", "events.TriggerPulled", pulled))
    world.fold()
    assert world.state() == "failed"
    assert kit.count("node_records") == 0  # compensated
    world.turn()
    cancelled = kit.sql("SELECT kind FROM effect_ledger WHERE status = 'cancelled'")
    assert cancelled == [("consul.register",)]
    assert len(world.consul.asked) == 1


def test_the_same_thing_is_not_done_twice(kit: Kit) -> None:
    """Promise 7: the natural key stands among successes in force."""
    world = world_of(kit)
    kit.submit(introduced("n1"))
    world.turn()
    kit.sql(
        "INSERT INTO intents (intent_id, domain, partition, entity_id, machine, kind, service,"
        " payload, correlation_id, causation_id, created_at, due_at, sequence, registration_id)"
        " SELECT gen_random_uuid(), l.domain, e.partition, l.entity_id, l.machine, l.kind,"
        " 'consul', '{}', e.correlation_id, e.last_applied_event_id, now(), now(),"
        " e.last_applied_sequence, l.registration_id FROM effect_ledger AS l JOIN entities AS e"
        " USING (entity_id, machine) WHERE l.kind = 'consul.register' RETURNING 1"
    )
    world.turn()
    assert len(world.consul.asked) == 1
    rows = kit.sql("SELECT reason, error FROM dead_letters")
    assert rows == [("conflict", "the same thing was done before with another payload")]


def test_one_bad_record_fails_alone(kit: Kit) -> None:
    world = world_of(kit)
    kit.submit(*(introduced(f"n{number}") for number in range(20)))
    for room in range(PARTITIONS):
        kit.runtime.drain("registration", room)
    kit.sql(
        "UPDATE intents SET payload = json_build_object('record', 'x')"
        " WHERE entity_id = 'n7' RETURNING 1"
    )
    world.effects.run("postgres")
    world.turn()
    states = kit.states("registration")
    assert states.pop("n7") == "failed"
    assert set(states.values()) == {"registered"}


def test_results_have_the_ids_of_their_intent_and_attempt(kit: Kit) -> None:
    world = world_of(kit)
    kit.submit(introduced("n1"))
    world.turn()
    rows = kit.sql(
        "SELECT CAST(l.intent_id AS text), l.attempts, CAST(e.message_id AS text)"
        " FROM effect_ledger AS l JOIN event_log AS e ON e.entity_id = l.entity_id"
        " WHERE l.kind = 'consul.register' AND e.trigger = 'CONSUL_SUCCEEDED'"
    )
    from uuid import uuid5

    assert [uuid5(UUID(intent), str(attempt)) for intent, attempt, _ in rows] == [
        UUID(message) for _, _, message in rows
    ]
    kit.audit()


def test_a_node_is_found_in_a_real_consul_and_is_gone_after_it_left(kit: Kit) -> None:
    """Promise 10, the short way: registered in both systems, and removed from both."""
    effects, doorbell = kit.process.effects, kit.process.doorbell
    assert effects.serves("consul")
    kit.submit(introduced("n1"), introduced("n2"))

    def turn() -> None:
        for _ in range(2):
            for room in range(PARTITIONS):
                answer(kit.runtime, effects, doorbell, "registration", room)
            serve(effects, doorbell, "consul")
        for room in range(PARTITIONS):
            answer(kit.runtime, effects, doorbell, "registration", room)

    turn()
    assert kit.states("registration") == {"n1": "registered", "n2": "registered"}
    assert kit.settings.consul_url is not None
    url = f"{kit.settings.consul_url.reveal()}/v1/catalog/service/svc"
    assert {each["ServiceID"] for each in httpx.get(url).json()} >= {"svc-n1", "svc-n2"}
    kit.submit(said("n1", "commands.DeregisterNodeRequested", {"node_id": "n1"}))
    turn()
    assert kit.states("registration") == {"n1": "deregistered", "n2": "registered"}
    found = {each["ServiceID"] for each in httpx.get(url).json()}
    assert "svc-n1" not in found
    assert "svc-n2" in found
    kit.audit()


def test_a_service_with_due_intents_is_rung_by_the_tick(kit: Kit) -> None:
    from tasks.store import inbox

    kit.submit(introduced("n1"))
    for room in range(PARTITIONS):
        kit.runtime.drain("registration", room)
    with Session(kit.engine) as session:
        assert ("effects.postgres", 0) in inbox.waiting_rooms(session, ["postgres", "consul"])
    kit.sql("UPDATE intents SET due_at = now() + interval '1 hour' RETURNING 1")
    with Session(kit.engine) as session:
        assert ("effects.postgres", 0) not in inbox.waiting_rooms(session, ["postgres"])


def test_a_service_is_known_by_its_kinds(kit: Kit) -> None:
    known: dict[str, Service] = dict(services(PostgresHandler(), Scripted()))
    assert {kind.name for each in known.values() for kind in each.kinds} == {
        "postgres.upsert_registration",
        "postgres.delete_registration",
        "consul.register",
        "consul.deregister",
        "consul.activate",
    }


def test_what_may_have_been_written_is_looked_at_again(kit: Kit) -> None:
    """An attempt without an answer, over before it could be repeated, may be in Consul."""
    world = world_of(kit)
    world.consul.script = [UNREACHED]
    kit.submit(introduced("n1"))
    world.turn()
    kit.submit(said("n1", "commands.DeregisterNodeRequested", {"node_id": "n1"}))
    kit.sql("UPDATE entities SET last_applied_sequence = last_applied_sequence + 1")
    world.pass_by(10)
    assert world.effects.run("consul").cancelled == 1
    assert kit.sql("SELECT node_id FROM consul_rechecks") == [("n1",)]


def sees_tick(world: World) -> int:
    """A real tick, at the database's own time, with the retries of the machines that run."""
    world.kit.sql("UPDATE runtime_clock SET at = 'epoch'")
    told = RuntimeTick(now=datetime.now(UTC), tick_sequence=1, runtime_id="rt-1")
    machines = world.kit.process.machines
    return run_tick(
        world.kit.engine,
        told,
        timedelta(seconds=1),
        lambda rooms: 0,
        retried=machines.retried_services,
    )["timeouts"]


def bring_deadline(kit: Kit, machine: str = "registration") -> None:
    """As if the state had lasted too long already."""
    kit.sql(
        "UPDATE entities SET next_deadline = now() - interval '1 second', deadlines ="
        ' CAST(regexp_replace(CAST(deadlines AS text), \'"at": ?"[^"]*"\','
        " '\"at\":\"2020-01-01T00:00:00+00:00\"', 'g') AS json)"
        f" WHERE machine = '{machine}'"
    )


def next_deadline(kit: Kit, machine: str = "registration") -> float:
    ((seconds,),) = kit.sql(
        "SELECT CAST(extract(epoch FROM next_deadline - now()) AS float8) FROM entities"
        f" WHERE machine = '{machine}'"
    )
    return float(seconds)


def open_circuit(kit: Kit, seconds: int) -> None:
    kit.sql(
        "INSERT INTO circuits (service, state, failures, opened_at, barred_until) VALUES"
        f" ('consul', 'OPEN', 5, now(), now() + interval '{seconds} seconds')"
        " ON CONFLICT (service) DO UPDATE SET state = 'OPEN',"
        " opened_at = EXCLUDED.opened_at, barred_until = EXCLUDED.barred_until"
    )


def test_a_state_is_not_blamed_for_an_intent_nobody_took_yet(kit: Kit) -> None:
    """Ruling 15: the deadline waits, and so does the patience of the intent."""
    world = world_of(kit)
    kit.submit(introduced("n1"))
    world.fold()
    bring_deadline(kit)
    assert sees_tick(world) == 0
    assert 8 < next_deadline(kit) <= 10
    ((patient,),) = kit.sql("SELECT not_after >= now() + interval '8 seconds' FROM intents")
    assert patient
    kit.sql("UPDATE intents SET attempt = 1")  # somebody has it, and takes too long
    bring_deadline(kit)
    assert sees_tick(world) == 1


def test_an_open_circuit_holds_deadlines_back(kit: Kit) -> None:
    """Ruling 23: what was tried already waits too while nothing can be tried."""
    world = world_of(kit)
    world.consul.script = [UNREACHED]
    kit.submit(introduced("n1"))
    world.turn()
    open_circuit(kit, 40)
    bring_deadline(kit)
    assert sees_tick(world) == 0
    assert 45 < next_deadline(kit) <= 50
    kit.sql("UPDATE circuits SET state = 'CLOSED', barred_until = NULL")
    bring_deadline(kit)
    assert sees_tick(world) == 1


def test_an_open_circuit_holds_automatic_retries_back(kit: Kit) -> None:
    world = world_of(kit)
    world.consul.script = [REFUSED]
    kit.submit(introduced("n1"))
    world.turn()
    assert world.state() == "partial_registered"
    open_circuit(kit, 40)
    bring_deadline(kit)
    assert sees_tick(world) == 0
    assert 35 < next_deadline(kit) <= 40
    kit.sql("UPDATE circuits SET barred_until = now()")  # time for a probe: the retry brings it
    bring_deadline(kit)
    assert sees_tick(world) == 1


def test_a_deadline_with_a_name_of_its_own_never_waits(kit: Kit) -> None:
    """An acknowledgement is owed by the node, whatever Consul does."""
    world = world_of(kit)
    kit.submit(introduced("n1"))
    world.turn()
    open_circuit(kit, 40)
    bring_deadline(kit, "handshake")
    assert sees_tick(world) == 1


def test_a_machine_whose_intent_nobody_handles_does_not_start(settings: Settings) -> None:
    backup = load_contract(Path("docs/examples/backup.yaml"))
    with pytest.raises(ConfigurationError, match=r"machine backup emits http\.request"):
        refuse_unhandled([backup])
    refuse_unhandled(loaded.contract for loaded in all_machines().values())


def acknowledged(kit: Kit, node_id: str) -> Envelope:
    ((asked,),) = kit.sql(
        "SELECT context->>'registration_id' FROM entities"
        f" WHERE machine = 'handshake' AND entity_id = '{node_id}'"
    )
    return said(
        node_id, "commands.NodeRegistrationAcked", {"node_id": node_id, "registration_id": asked}
    )


def test_a_node_that_became_active_is_shown_as_alive(kit: Kit) -> None:
    """Ruling 25: critical until active, then passing. Nobody waits for it, and nothing follows."""
    world = world_of(kit)
    kit.submit(introduced("n1"))
    world.turn()
    kit.submit(acknowledged(kit, "n1"))
    world.turn()
    assert kit.states("handshake") == {"n1": "active"}
    *_, (shown,) = world.consul.asked
    assert (shown.kind, shown.machine) == ("consul.activate", "handshake")
    assert shown.payload["registration_id"] == shown.registration_id
    assert (kit.count("intents"), kit.count("inbox"), kit.count("dead_letters")) == (0, 0, 0)


def test_what_nobody_is_told_of_becomes_a_letter(kit: Kit) -> None:
    world = world_of(kit)
    kit.submit(introduced("n1"))
    world.turn()
    world.consul.script = [REFUSED]
    kit.submit(acknowledged(kit, "n1"))
    world.turn()
    assert kit.states("handshake") == {"n1": "active"}
    assert kit.sql("SELECT kind, reason FROM dead_letters") == [
        ("consul.activate", "permanent_error")
    ]
