"""The garbage collection as a deployment runs it: a worker takes what beat sends."""

import redis

from beat_schedule import COLLECT
from tasks.settings import Settings
from tasks.wiring import celery_app
from tests.conftest import StartRole, sql
from tests.integration.test_gc import HOUR, shown, written
from tests.polling import eventually

PREFIX = "gc-task-"


def test_a_worker_collects_when_beats_ask_and_many_of_them_cost_one_run(
    settings: Settings, start_role: StartRole
) -> None:
    ours = settings.at(consul_node_prefix=PREFIX)
    written(ours, 2 * HOUR, "orphan")
    app = celery_app(ours)
    entry = app.conf.beat_schedule["collect-garbage"]
    for _ in range(3):
        app.send_task(entry["task"], **entry["options"])
    assert entry["task"] == COLLECT
    assert settings.broker_url
    start_role("worker", "worker", ROLLCALL_CONSUL_NODE_PREFIX=PREFIX)
    runs = "SELECT nodes_cleaned FROM registration_gc_log"
    with redis.Redis.from_url(settings.broker_url.reveal()) as broker:
        eventually(
            lambda: sql(settings.database_url, runs) and not broker.llen(entry["options"]["queue"]),
            "the messages are taken and the run is logged",
        )
    assert sql(settings.database_url, runs) == [(1,)]
    assert shown(ours) == set()
