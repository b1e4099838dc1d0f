"""What one process holds open: made on first use, after the fork, never carried over one."""

import os
import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property

import redis
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from fsm.contract_yaml import load_contract
from fsm.library import Loaded
from fsm.machines import Machines
from fsm.orchestrators.registration import RollCallPolicy
from models.registry import MessageRegistry
from tasks.catalogue import catalogue
from tasks.collected import GcPolicy
from tasks.contention import Contention
from tasks.database import open_engine
from tasks.doorbell import Doorbell
from tasks.effects.consul import ConsulHandler
from tasks.effects.execute import Effects
from tasks.effects.postgres import PostgresHandler
from tasks.effects.services import services
from tasks.gc import Collector
from tasks.optimistic import Transitions
from tasks.redaction import Redactor
from tasks.runtime import Runtime
from tasks.settings import ConsulMode, Settings
from tasks.store import contracts, event_log, partitions

Library = Mapping[str, Loaded]
Send = Callable[[str, int], None]


def _policy(settings: Settings) -> RollCallPolicy:
    return RollCallPolicy(
        environments=settings.allowed_environments,
        denied_nodes=settings.denied_nodes or frozenset(),
        register_on_request=settings.register_on_request,
    )


def _clock() -> datetime:
    """For what is written into other systems; decisions go by the database's clock."""
    return datetime.now(UTC)


class _Held:
    """The connections of one process."""

    def __init__(self, settings: Settings, library: Library, send: Send) -> None:
        self._settings = settings
        self._library = library
        self._send = send

    @cached_property
    def engine(self) -> Engine:
        return open_engine(self._settings, "worker")

    @cached_property
    def doorbell(self) -> Doorbell:
        assert self._settings.broker_url is not None  # noqa: S101
        client = redis.Redis.from_url(
            self._settings.broker_url.reveal(), socket_timeout=5, socket_connect_timeout=2
        )
        return Doorbell(client, self._send)

    @cached_property
    def machines(self) -> Machines:
        """What runs, and whatever contracts this database was run with before."""
        running = self._library.values()
        with Session(self.engine) as session, session.begin():
            contracts.keep(session, running)
            former = contracts.former(session, running)
            machines = Machines(
                (contract for contract, _ in running),
                {found: load_contract(document) for found, document in former.items()},
            )
            partitions.prepare(session, machines.domains)
            event_log.add_months(session)
        return machines

    @cached_property
    def registry(self) -> MessageRegistry:
        return catalogue(self.machines, _policy(self._settings))

    @cached_property
    def runtime(self) -> Runtime:
        return Runtime(
            self.engine,
            self.machines,
            self.registry,
            self.doorbell,
            Redactor(self._settings.secrets),
            liveness=self._settings.liveness,
        )

    @cached_property
    def consul(self) -> ConsulHandler | None:
        return None if self._settings.consul_url is None else ConsulHandler(self._settings, _clock)

    @cached_property
    def collector(self) -> Collector:
        """An agent's services have no prefix that tells whose they are: they are left alone."""
        settings, client = self._settings, None
        if self.consul is not None and settings.consul_mode is ConsulMode.CATALOG:
            client = self.consul.client
        policy = GcPolicy(age=timedelta(seconds=settings.gc_orphan_age_seconds))
        return Collector(self.engine, self.machines, client, settings.consul_node_prefix, policy)

    @cached_property
    def effects(self) -> Effects:
        settings = self._settings
        return Effects(
            self.engine,
            services(PostgresHandler(), self.consul),
            Redactor(settings.secrets).text,
            random.random,
        )

    @cached_property
    def transitions(self) -> Transitions:
        return Transitions(self.engine, self.machines, self.registry, self.doorbell, Contention())


class WorkerProcess:
    """What the process that asks holds; a forked child gets its own."""

    def __init__(self, settings: Settings, library: Library, send: Send) -> None:
        self._settings = settings
        self._library = library
        self._send = send
        self._owner = 0
        self._held = _Held(settings, library, send)

    @property
    def engine(self) -> Engine:
        return self._own().engine

    @property
    def doorbell(self) -> Doorbell:
        return self._own().doorbell

    @property
    def machines(self) -> Machines:
        return self._own().machines

    @property
    def registry(self) -> MessageRegistry:
        return self._own().registry

    @property
    def runtime(self) -> Runtime:
        return self._own().runtime

    @property
    def effects(self) -> Effects:
        return self._own().effects

    @property
    def collector(self) -> Collector:
        return self._own().collector

    @property
    def transitions(self) -> Transitions:
        return self._own().transitions

    def _own(self) -> _Held:
        if self._owner != os.getpid():
            self._owner = os.getpid()
            self._held = _Held(self._settings, self._library, self._send)
        return self._held
