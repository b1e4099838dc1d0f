"""A roll call with processes of its own: a worker, a beat, and a Consul that may be ill-treated."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from fsm.library import Machine, all_machines
from models.envelope import Envelope
from models.errors import InfraUnavailableError
from rollcall.home import Home
from rollcall.ports import free_ports
from rollcall.processes import Child, Program, stop_together, wait_until_ready
from tasks.reachability import consul_version
from tasks.secrets import SecretUrl
from tasks.settings import Settings
from tasks.wiring import celery_app
from tests.conftest import REPOSITORY, clean_environment
from tests.conftest import _isolated as isolated
from tests.polling import eventually
from tests.runtime_kit import Kit, ringing_kit

SERVICE = "trial"
QUICK = {"lease_seconds": 3, "reset_seconds": 1}
# What the shipped contracts say, and what these trials make of it.
EDITS = {
    "registration": {"base_ms: 1000": "base_ms: 200", "max_ms: 30000": "max_ms: 400"},
}

Edits = Mapping[str, Mapping[str, str]]


def said(node_id: str, name: str, payload: Mapping[str, Any]) -> Envelope:
    return Envelope(
        message_id=uuid4(),
        correlation_id=uuid4(),
        causation_id=None,
        emitted_at=datetime.now(UTC),
        entity_id=node_id,
        message_type=f"registration.{name}",
        payload=dict(payload),
    )


def offer(node_id: str, **changes: Any) -> dict[str, Any]:
    """What a node says of itself."""
    return {
        "node_id": node_id,
        "deployment_id": "d1",
        "environment": "prod",
        "network_id": "net",
        "consul_service_id": f"{SERVICE}-{node_id}",
        "consul_service_name": SERVICE,
        "postgres_record": {"role": "web"},
    } | changes


def pulled(node_id: str, trigger: str, **data: Any) -> Envelope:
    """An operator's request for a trigger."""
    wanted = {"machine": "registration", "trigger": trigger, "data": data}
    return said(node_id, "commands.PullTrigger", wanted)


class OwnConsul:
    """A Consul server that keeps its data on disk, to be killed, frozen and started again."""

    def __init__(self, binary: Path, home: Home, *config: str) -> None:
        home.create()
        self.port, serf, server = free_ports(3)
        self.url = SecretUrl(f"http://127.0.0.1:{self.port}")
        words = (
            *(str(binary), "agent", "-server", "-bootstrap-expect=1"),
            *(f"-data-dir={home.path / 'consul'}", "-bind=127.0.0.1", "-client=127.0.0.1"),
            *(f"-http-port={self.port}", f"-serf-lan-port={serf}", f"-server-port={server}"),
            *("-serf-wan-port=-1", "-dns-port=-1", "-grpc-port=-1", "-node=trial"),
            *("-log-level=warn", "-hcl", "performance { raft_multiplier = 1 }"),
            *("-hcl", "disable_update_check = true"),
            *(word for each in config for word in ("-hcl", each)),
        )
        program = Program("consul", words, env=clean_environment(), stop_signal=signal.SIGINT)
        self._child = Child(program, home.path)

    def start(self) -> "OwnConsul":
        self._child.start()
        wait_until_ready(self._child, self._leads, 60)
        return self

    def stop(self) -> None:
        self._child.stop()

    def send(self, sent: signal.Signals) -> None:
        assert self._child.pid is not None
        os.kill(self._child.pid, sent)

    def _leads(self) -> None:
        consul_version(self.url)
        try:
            found = httpx.get(f"{self.url.reveal()}/v1/catalog/nodes")
        except httpx.HTTPError:
            raise InfraUnavailableError("no answer yet", "wait") from None
        # With ACLs an anonymous reader is told of no node, which is an answer, too.
        if (
            found.status_code != 200
            or httpx.get(f"{self.url.reveal()}/v1/status/leader").json() == ""
        ):
            raise InfraUnavailableError("no leader yet", "wait")


@dataclass
class RollCall:
    """The processes of one roll call, and what an onlooker sees of it."""

    settings: Settings
    kit: Kit
    quick: Mapping[str, Any]
    started: dict[str, Child] = field(default_factory=dict)

    def environment(self, **environ: str) -> dict[str, str]:
        said = {"QUICK": json.dumps(self.quick)}
        return clean_environment() | self.settings.environment() | said | environ

    def start(self, name: str, role: str = "", **environ: str) -> Child:
        """A worker or a beat; a worker is waited for until it answers."""
        role = role or name
        named = ("--name", name) if role == "worker" else ()
        words = (sys.executable, "-m", "tests.quick_rollcall", role, *named)
        program = Program(name, words, env=self.environment(**environ), stop_seconds=20)
        child = self.started[name] = Child(program, self.settings.home)
        child.start()
        wait_until_ready(child, lambda: self._answers(name) if role == "worker" else None, 60)
        return child

    def _answers(self, name: str) -> None:
        address = f"{name}@{socket.gethostname()}"
        control = celery_app(self.settings).control
        if not control.broadcast("ping", destination=[address], reply=True, timeout=1, limit=1):
            raise InfraUnavailableError("no answer yet", "wait")

    def kill(self, name: str) -> None:
        """As the machine's own killer does it: it and its children, with no time for a word."""
        child = self.started.pop(name)
        assert child.pid is not None
        os.killpg(child.pid, signal.SIGKILL)
        child.stop()

    def command(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tests.quick_rollcall", *words],
            env=self.environment(**environ),
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def introduce(self, *nodes: str, **changes: Any) -> list[Envelope]:
        made = [said(each, "events.NodeIntrospected", offer(each, **changes)) for each in nodes]
        self.kit.submit(*made)
        return made

    def acknowledge(self, *nodes: str) -> list[Envelope]:
        """Each node answers the offer it has now."""
        attempts = self.contexts("handshake", "registration_id")
        made = [
            said(
                each,
                "commands.NodeRegistrationAcked",
                {"node_id": each, "registration_id": attempts[each]},
            )
            for each in nodes
        ]
        self.kit.submit(*made)
        return made

    def leave(self, *nodes: str) -> None:
        self.kit.submit(
            *(said(each, "commands.DeregisterNodeRequested", {"node_id": each}) for each in nodes)
        )

    def contexts(self, machine: str, key: str) -> dict[str, str]:
        return dict(
            self.kit.sql(
                f"SELECT entity_id, context->>'{key}' FROM entities WHERE machine = '{machine}'"
            )
        )

    def states(self, nodes: Iterable[str], machine: str = "registration") -> set[str | None]:
        found = self.kit.states(machine)
        return {found.get(each) for each in nodes}

    def until(
        self, state: str, *nodes: str, machine: str = "registration", seconds: float = 30
    ) -> None:
        """Wait until all of them are in that state."""

        def there() -> bool:
            return self.states(nodes, machine) == {state}

        try:
            eventually(there, f"{machine} {state}", seconds)
        except AssertionError as error:
            found = {each: self.kit.states(machine).get(each) for each in nodes}
            astray = {each: state_ for each, state_ in found.items() if state_ != state}
            raise AssertionError(f"{error}; {[*astray.items()][:5]}") from None

    def trail(self, node_id: str, machine: str = "registration") -> list[str]:
        """Every state the machine passed through."""
        rows = self.kit.sql(
            f"SELECT path FROM event_log WHERE entity_id = '{node_id}'"
            f" AND machine = '{machine}' ORDER BY sequence"
        )
        passed: list[str] = []
        for (path,) in rows:
            states = re.findall(r"\w+", path)
            passed += states if not passed else states[1:]
        return passed

    def triggers(self, node_id: str, machine: str = "registration") -> list[str]:
        rows = self.kit.sql(
            f"SELECT trigger FROM event_log WHERE entity_id = '{node_id}'"
            f" AND machine = '{machine}' ORDER BY sequence"
        )
        return [trigger for (trigger,) in rows]

    def in_consul(self) -> set[str]:
        """The service ids that Consul's own API tells of."""
        found = self._asked_of_consul("catalog/service")
        prefix = self.settings.consul_node_prefix
        return {each["ServiceID"] for each in found if each["Node"].startswith(prefix)}

    def check(self, node_id: str) -> str:
        """What Consul says of the node's health."""
        found = self._asked_of_consul("health/checks")
        (status,) = (each["Status"] for each in found if each["ServiceID"] == f"trial-{node_id}")
        return str(status)

    def _asked_of_consul(self, what: str) -> Any:
        assert self.settings.consul_url
        token = self.settings.consul_token
        return httpx.get(
            f"{self.settings.consul_url.reveal()}/v1/{what}/{SERVICE}",
            headers={"X-Consul-Token": token.reveal()} if token else {},
        ).json()

    def quiet(self) -> bool:
        return self.kit.count("inbox") == 0 and self.kit.count("intents") == 0

    def verify(self) -> None:
        """Promise 5: nothing waits, and folding the log again gives every row."""
        try:
            eventually(self.quiet, "nothing waits")
        except AssertionError as error:
            waits = self.kit.sql(
                "SELECT entity_id, kind, attempt, tries, due_at - now(), leased_until, history"
                " FROM intents LIMIT 5"
            )
            raise AssertionError(f"{error}: {waits}") from None
        done = self.command("replay", "--verify")
        assert done.returncode == 0, done.stdout + done.stderr


def edited_contracts(folder: Path, edits: Edits) -> Path:
    """The shipped machines with some of their lines changed."""
    folder.mkdir(parents=True)
    for name, loaded in all_machines().items():
        if name not in tuple(Machine):
            continue
        text = loaded.document
        for old, new in edits.get(name, {}).items():
            pattern = rf"(?<!_){re.escape(old)}"
            assert re.search(pattern, text), old
            text = re.sub(pattern, new, text)
        (folder / f"{name}.yaml").write_text(text)
    return folder


@contextlib.contextmanager
def roll_call(
    servers: Settings,
    template: str,
    edits: Edits = EDITS,
    quick: Mapping[str, Any] = QUICK,
    roles: Iterable[str] = ("worker", "beat"),
    **changes: object,
) -> Iterator[RollCall]:
    """A roll call on a database of its own; what it started is gone afterwards."""
    for settings in isolated(servers, template):
        prefix = f"{settings.home.name[-8:]}-"
        ours = settings.at(tick_interval_ms=100, consul_node_prefix=prefix, ack_seconds=20)
        ours = ours.at(**changes)
        home = Home(ours.home)
        home.create()
        folder = edited_contracts(home.path / "machines", edits)
        kit = ringing_kit(ours)
        made = RollCall(ours, kit, dict(quick) | {"contracts": str(folder)})
        with home.owned():
            try:
                for each in roles:
                    made.start(each)
                yield made
            finally:
                stop_together([*made.started.values()])
                kit.process.doorbell._client.close()
                kit.engine.dispose()
