"""`rollcall heartbeat`: who was heard, and who must introduce itself."""

import json
import subprocess
import sys

from tasks.settings import Settings
from tests.conftest import REPOSITORY, Rollcall, clean_environment, sql


def _live(settings: Settings, *node_ids: str) -> None:
    """Rows as they are while a handshake is active, last heard an hour ago."""
    for node_id in node_ids:
        sql(
            settings.database_url,
            f"INSERT INTO heartbeats VALUES ('{node_id}', now() - interval '1 hour', now())",
        )


def test_live_nodes_are_heard_and_others_are_told_to_introduce_themselves(
    rollcall: Rollcall, settings: Settings
) -> None:
    _live(settings, "n1", "n2")
    heard = rollcall("heartbeat", "n1", "n2", settings=settings)
    assert (heard.returncode, heard.stdout) == (0, "heard 2\n"), heard.stderr
    late = "SELECT count(*) FROM heartbeats WHERE last_seen > now() - interval '1 minute'"
    assert sql(settings.database_url, late) == [(2,)]
    mixed = rollcall("heartbeat", "n1", "stranger", settings=settings)
    assert (mixed.returncode, mixed.stdout) == (1, "heard 1\nstranger: introduce yourself\n")


def test_ids_come_from_standard_input_and_answers_as_json(settings: Settings) -> None:
    _live(settings, "n1")
    done = subprocess.run(
        [sys.executable, "-m", "rollcall", "heartbeat", "-", "--json"],
        input="n1\nn3 n1\n",
        env=clean_environment() | settings.environment(),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout) == {"alive": ["n1"], "introduce_yourself": ["n3"]}


def test_what_is_no_node_id_is_refused_in_one_line(rollcall: Rollcall, settings: Settings) -> None:
    done = rollcall("heartbeat", "n1", "no node", settings=settings)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("rollcall: heartbeat 1: that is no node_id")
