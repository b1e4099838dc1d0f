"""A Consul that refuses for good: failed, kept as a dead letter, and done again once mended."""

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from rollcall.devstack import throwaway_home
from tasks.secrets import Secret
from tasks.settings import Settings
from tests.roll_call_kit import OwnConsul, RollCall, roll_call

MASTER = str(uuid4())
TOKENS = f'tokens {{ master = "{MASTER}" default = "{MASTER}" }}'
ACL = f'acl {{ enabled = true default_policy = "deny" {TOKENS} }}'
READS = 'node_prefix "" { policy = "read" } service_prefix "" { policy = "read" }'
WRITES = READS.replace("read", "write")


class Guarded:
    """A Consul with ACLs, and the one policy our token has."""

    def __init__(self, server: OwnConsul) -> None:
        self.server = server
        self._policy = str(self._put("policy", {"Name": "ours", "Rules": READS})["ID"])
        made = self._put("token", {"Policies": [{"ID": self._policy}]})
        self.token = Secret(str(made["SecretID"]))

    def mend(self) -> None:
        self._put(f"policy/{self._policy}", {"Name": "ours", "Rules": WRITES})

    def _put(self, path: str, body: dict[str, object]) -> dict[str, object]:
        answer = httpx.put(
            f"{self.server.url.reveal()}/v1/acl/{path}",
            json=body,
            headers={"X-Consul-Token": MASTER},
        )
        assert answer.status_code == 200, answer.text
        found: dict[str, object] = answer.json()
        return found


@pytest.fixture
def guarded(consul: Path) -> Iterator[Guarded]:
    with throwaway_home("trial-acl") as home, home.owned():
        server = OwnConsul(consul, home, ACL).start()
        yield Guarded(server)
        server.stop()


@pytest.fixture
def calls(servers: Settings, template: str, guarded: Guarded) -> Iterator[RollCall]:
    ours = servers.at(consul_url=guarded.server.url, consul_token=guarded.token)
    with roll_call(ours, template) as made:
        yield made
        made.verify()


def test_a_refused_node_fails_and_is_registered_by_a_replay_once_the_cause_is_mended(
    calls: RollCall, guarded: Guarded
) -> None:
    """Promises 8 and 12 with ruling 26."""
    nodes = [f"r{at}" for at in range(5)]
    calls.introduce(*nodes)
    calls.until("failed", *nodes)
    listed = json.loads(calls.command("dlq", "list", "--json").stdout)
    assert {each["entity_id"] for each in listed["letters"]} == {*nodes}
    shown = calls.command("node", "r0")
    assert "dead letter" in shown.stdout
    assert "consul_error: " in shown.stdout
    assert guarded.token.reveal() not in shown.stdout + json.dumps(listed)
    guarded.mend()
    done = calls.command("dlq", "replay", "--all", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    calls.until("registered", *nodes)
    assert set(calls.contexts("registration", "generation").values()) == {"2"}
    assert calls.in_consul() == {f"trial-{each}" for each in nodes}
