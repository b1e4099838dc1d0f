"""The command line as a deployment runs it, with shorter timers: `python -m tests.quick_rollcall`.

`QUICK` in the environment says them as JSON: `contracts` (a folder with the shipped machines,
edited), `lease_seconds`, `reset_seconds`.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import fsm.library
import tasks.worker_process
from rollcall.cli import app
from tasks.effects.handler import Handler, Service
from tasks.effects.services import services


def hurry(said: Mapping[str, object]) -> None:
    """Swap the two parts that know the timers, before anything is built from them."""
    folder = Path(str(said["contracts"]))
    fsm.library._shipped = lambda machine: folder / f"{machine}.yaml"

    def hurried(postgres: Handler, consul: Handler | None) -> Mapping[str, Service]:
        return {name: _quick(each, said) for name, each in services(postgres, consul).items()}

    setattr(tasks.worker_process, "services", hurried)  # noqa: B010


def _quick(service: Service, said: Mapping[str, object]) -> Service:
    reset = timedelta(seconds=float(str(said["reset_seconds"])))
    breaker = replace(service.breaker, reset_timeout=reset, probe_timeout=2 * reset)
    return replace(service, breaker=breaker, lease_seconds=float(str(said["lease_seconds"])))


if __name__ == "__main__":
    hurry(json.loads(os.environ["QUICK"]))
    app()
