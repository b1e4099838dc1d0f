"""The compose file: parsed, read for what it exposes, and each of our services run as it says."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from models.errors import InfraUnavailableError
from rollcall.insights import clock
from rollcall.processes import Child
from tasks.database import open_engine
from tasks.schema import current, head
from tasks.settings import Settings, unknown_variables
from tests.conftest import REPOSITORY, StartRole, clean_environment, sql
from tests.polling import eventually

COMPOSE: dict[str, Any] = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name for name, service in SERVICES.items() if service["image"].startswith("rollcall:")}
PATH = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"


def test_the_services_are_the_ones_promised() -> None:
    assert set(SERVICES) == {
        *("postgres", "redis", "consul", "migrate", "worker", "beat", "flower")
    }
    assert {"migrate", "worker", "beat", "flower"} == OURS


def test_only_flower_is_published_and_only_on_loopback() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {"flower": ["127.0.0.1:5555:5555"]}
    assert COMPOSE["networks"]["inside"] == {"internal": True}
    assert [n for n, s in SERVICES.items() if s["networks"] != ["inside"]] == ["flower"]


def test_no_password_stands_in_the_file_or_has_a_default() -> None:
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            if re.search("PASSWORD|TOKEN|AUTH|DATABASE_URL|BROKER_URL", name):
                assert name.endswith(("_FILE", "_ARGS"))
                assert str(value).startswith(("/run/secrets/", "--auth=scram"))
    assert all(set(secret) == {"file"} for secret in COMPOSE["secrets"].values())
    assert "://" not in re.sub(
        r"http://consul:8500", "", (REPOSITORY / "docker-compose.yml").read_text()
    )


def test_every_service_that_stays_is_checked_and_starts_after_what_it_needs() -> None:
    for name, service in SERVICES.items():
        assert name == "migrate" or service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
        for needed, how in service.get("depends_on", {}).items():
            wanted = "service_completed_successfully" if needed == "migrate" else "service_healthy"
            assert how == {"condition": wanted}
    assert "migrate" in SERVICES["worker"]["depends_on"]


def test_our_containers_have_no_more_rights_than_they_need() -> None:
    for name in OURS:
        assert SERVICES[name]["read_only"] is True
        assert SERVICES[name]["cap_drop"] == ["ALL"]
        assert SERVICES[name]["security_opt"] == ["no-new-privileges:true"]


def test_every_setting_in_the_file_is_one_of_ours() -> None:
    for name in OURS:
        assert unknown_variables(SERVICES[name]["environment"]) == ()


def test_the_secrets_are_made_at_random_once_and_closed_to_others(tmp_path: Path) -> None:
    script = REPOSITORY / "deploy" / "make-secrets.sh"
    folder = tmp_path / "secrets"
    contents: list[dict[str, str]] = []
    for _ in range(2):
        subprocess.run([str(script), str(folder)], check=True)
        contents.append({file.name: file.read_text() for file in folder.iterdir()})
    assert contents[0] == contents[1]
    assert set(contents[0]) == set(COMPOSE["secrets"])
    assert folder.stat().st_mode & 0o077 == 0
    made = contents[0]
    Settings.from_environment(
        {
            "ROLLCALL_DATABASE_URL": made["database_url"],
            "ROLLCALL_BROKER_URL": made["broker_url"],
            "ROLLCALL_FLOWER_BASIC_AUTH": made["flower_basic_auth"],
        }
    )
    assert made["postgres_password"] in made["database_url"]
    assert made["redis_password"] in made["broker_url"]


def test_the_image_copies_every_package_and_pins_every_dependency() -> None:
    dockerfile = (REPOSITORY / "Dockerfile").read_text()
    packages = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["setuptools"]
    for package in {name.partition(".")[0] for name in packages["packages"]}:
        assert f"COPY {package} {package}\n" in dockerfile
    assert "--require-hashes -r requirements-image.lock" in dockerfile
    assert re.search(r"^USER (?!root)\w+", dockerfile, re.MULTILINE)
    image = _pins("requirements-image.lock")
    assert image <= _pins("requirements.lock"), "the image runs what the tests ran"


def _pins(file: str) -> set[str]:
    return set(re.findall(r"^([\w.-]+==\S+)", (REPOSITORY / file).read_text(), re.MULTILINE))


@pytest.fixture
def environment(settings: Settings, tmp_path: Path, port: int) -> Callable[[str], dict[str, str]]:
    """A service's environment as written, its secrets and hosts turned to the embedded servers."""
    assert settings.database_url
    assert settings.broker_url
    assert settings.consul_url
    secrets = {
        "database_url": settings.database_url.reveal(),
        "broker_url": settings.broker_url.reveal(),
        "flower_basic_auth": "rollcall:flower-pass",
    }
    for name, text in secrets.items():
        (tmp_path / name).write_text(text)

    def of(service: str) -> dict[str, str]:
        written = {key: str(value) for key, value in SERVICES[service]["environment"].items()}
        turned = {
            key: value.replace("/run/secrets", str(tmp_path))
            .replace(
                "http://consul:8500", settings.consul_url.reveal() if settings.consul_url else ""
            )
            .replace("/tmp/rollcall", str(settings.home))
            for key, value in written.items()
        }
        plain = {k: v for k, v in clean_environment().items() if not k.startswith("ROLLCALL_")}
        return plain | turned | {"PATH": PATH, "ROLLCALL_FLOWER_PORT": str(port)}

    return of


def run(command: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=env, capture_output=True, text=True, check=False, timeout=60, cwd="/"
    )


def test_migrate_runs_as_the_file_says(
    settings: Settings, environment: Callable[[str], dict[str, str]]
) -> None:
    engine = open_engine(settings, "test", pooled=False)
    sql(settings.database_url, "DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    for _ in range(2):
        done = run(SERVICES["migrate"]["command"], environment("migrate"))
        assert done.returncode == 0, done.stderr
    assert current(engine) == head()


@pytest.mark.parametrize("name", ["worker", "beat", "flower"])
def test_each_service_runs_as_the_file_says_and_its_health_check_can_tell(
    name: str, environment: Callable[[str], dict[str, str]], start_role: StartRole
) -> None:
    env = environment(name)
    check = SERVICES[name]["healthcheck"]["test"][1:]
    ill = run(check, env)
    assert ill.returncode != 0, "the check must fail while nothing runs"
    assert len(ill.stderr.strip().splitlines()) == 1

    def well() -> None:
        if run(check, env).returncode:
            raise InfraUnavailableError(f"{name} is not well yet", "wait")

    child = start_role(name, argv=tuple(SERVICES[name]["command"]), probe=well, **env)
    assert child.running()
    child.stop()
    eventually(lambda: run(check, env).returncode != 0, "a stopped one is told", seconds=20)


def test_worker_and_beat_as_the_file_says_make_ticks(
    settings: Settings, environment: Callable[[str], dict[str, str]], start_role: StartRole
) -> None:
    started: list[Child] = [
        start_role(name, argv=tuple(SERVICES[name]["command"]), **environment(name))
        for name in ("worker", "beat")
    ]
    engine = open_engine(settings, "test", pooled=False)
    eventually(lambda: clock(engine).ticks >= 2, "ticks are taken")
    assert all(child.running() for child in started)
