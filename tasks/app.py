"""The Celery app: its queues, its explicit task list, and its immunities."""

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

from celery import Celery, Task
from kombu import Exchange, Queue

from beat_schedule import COLLECT
from models.messages.runtime import RuntimeTick
from models.topics import Category, all_topics, topic
from tasks.doorbell import service_of
from tasks.logs import correlated
from tasks.rounds import answer, serve
from tasks.settings import Settings
from tasks.ticks import TickResult, run_tick
from tasks.worker_process import WorkerProcess

# The longest a task may run; longer work goes on in the next task. The broker must not hand a
# message out again while its task may still run.
TASK_SECONDS = 60
VISIBILITY_SECONDS = 5 * TASK_SECONDS

DRAIN = "runtime.DrainPartition"
EFFECTS = "runtime.RunEffects"
_EFFECTS_DOMAIN = "registration"


class CorrelatedTask(Task[Any, Any]):
    """Binds the message's correlation id, so that every line a task logs can be followed."""

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        request = self.request
        headers = request.headers or {}
        chain = headers.get("correlation_id") or request.correlation_id or request.id or "none"
        with correlated(str(chain), task=self.name, task_id=str(request.id)):
            return self.run(*args, **kwargs)


def create_app(settings: Settings, process: WorkerProcess, domains: Iterable[str]) -> Celery:
    """The app, built by the composition root; nothing is connected yet."""
    app: Celery = Celery("rollcall", set_as_current=False, task_cls=CorrelatedTask)
    app.conf.update(_configuration(settings, all_topics(domains)))
    for name, run in _tasks(settings, process).items():
        # A shared task would be put into every app of this process, with this app's connections.
        app.task(name=name, shared=False)(run)
    return app


def _tasks(settings: Settings, process: WorkerProcess) -> dict[str, Callable[..., object]]:
    """Every task there is. A task is a doorbell: what it works on is read from PostgreSQL."""
    interval = timedelta(milliseconds=settings.tick_interval_ms)

    def runtime_tick(tick: dict[str, Any]) -> TickResult:
        return run_tick(
            process.engine,
            RuntimeTick.model_validate(tick),
            interval,
            process.doorbell.ring,
            services=process.effects.services,
            policy=settings.liveness,
            retried=process.machines.retried_services,
        )

    def drain_partition(domain: str, partition: int) -> dict[str, Any]:
        return answer(process.runtime, process.effects, process.doorbell, domain, partition)

    def run_effects(service: str) -> dict[str, Any]:
        return serve(process.effects, process.doorbell, service)

    def collect_garbage() -> dict[str, Any]:
        lately = timedelta(seconds=settings.gc_interval_seconds) / 2
        return process.collector.run(process.doorbell.ring, unless_since=lately).counts()

    return {
        RuntimeTick.message_type: runtime_tick,
        DRAIN: drain_partition,
        EFFECTS: run_effects,
        COLLECT: collect_garbage,
    }


def send_drain(app: Celery, domain: str, partition: int) -> None:
    """Ring: the message says where to look, and nothing else."""
    service = service_of((domain, partition))
    if service is not None:
        queue = topic(_EFFECTS_DOMAIN, Category.INTENTS)
        app.send_task(EFFECTS, args=(service,), queue=queue, ignore_result=True)
        return
    queue = topic(domain, Category.EVENTS)
    app.send_task(DRAIN, args=(domain, partition), queue=queue, ignore_result=True)


def _configuration(settings: Settings, topics: Sequence[str]) -> dict[str, Any]:
    assert settings.broker_url is not None, "the composition root resolves the servers"  # noqa: S101
    return {
        "broker_url": settings.broker_url.reveal(),
        "broker_connection_retry_on_startup": True,
        "broker_transport_options": {
            "visibility_timeout": VISIBILITY_SECONDS,
            "socket_connect_timeout": 5,
            "socket_timeout": 30,
            "socket_keepalive": True,
            "health_check_interval": 15,
        },
        # JSON only: a message can never make a worker build an object of the sender's choosing.
        "accept_content": ["json"],
        "task_serializer": "json",
        "result_serializer": "json",
        "event_serializer": "json",
        # The row is the truth: no results are kept, and a task that dies is delivered again.
        "task_ignore_result": True,
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        "task_soft_time_limit": TASK_SECONDS - 10,
        "task_time_limit": TASK_SECONDS,
        # A doorbell that cannot be rung is rung by the next tick; nobody waits for it.
        "task_publish_retry": True,
        "task_publish_retry_policy": {"max_retries": 1, "interval_start": 0, "interval_max": 0.2},
        "task_queues": [Queue(name, Exchange(name), routing_key=name) for name in topics],
        "task_create_missing_queues": False,
        "task_default_queue": topics[0],
        "worker_prefetch_multiplier": 1,
        "worker_soft_shutdown_timeout": 10.0,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_send_task_events": True,
        "task_send_sent_event": True,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "enable_utc": True,
        "timezone": "UTC",
        # Deadlines live in PostgreSQL: beat has nothing to remember over a restart.
        "beat_scheduler": "celery.beat:Scheduler",
        "beat_max_loop_interval": max(settings.tick_interval_ms / 1000 / 4, 0.05),
    }
