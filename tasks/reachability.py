"""Asks each server who it is. Every way that can fail becomes one line with a remedy."""

import httpx
import psycopg2
import redis
import redis.exceptions

from models.errors import AccessRefusedError, InfraUnavailableError
from tasks.secrets import Secret, SecretUrl

_SECONDS = 5.0


def postgres_version(url: SecretUrl) -> str:
    """The version of the PostgreSQL that answers."""
    try:
        connection = psycopg2.connect(_libpq(url), connect_timeout=int(_SECONDS))
    except psycopg2.OperationalError as error:
        raise _postgres_refusal(url, str(error)) from None
    try:
        version: str = connection.get_parameter_status("server_version") or "unknown"
        return version.split(" ")[0]
    finally:
        connection.close()


def redis_version(url: SecretUrl) -> str:
    """The version of the Redis that answers."""
    client = redis.Redis.from_url(
        url.reveal(), socket_timeout=_SECONDS, socket_connect_timeout=_SECONDS
    )
    try:
        return str(client.info("server")["redis_version"])
    except (redis.exceptions.AuthenticationError, redis.exceptions.NoPermissionError):
        raise AccessRefusedError(
            f"Redis at {url} refuses the credentials of ROLLCALL_BROKER_URL", "correct its password"
        ) from None
    except (redis.exceptions.RedisError, OSError) as error:
        raise InfraUnavailableError(
            f"Redis at {url} does not answer: {_first_line(error)}",
            "start it, or correct ROLLCALL_BROKER_URL",
        ) from None
    finally:
        client.close()


def consul_version(url: SecretUrl, token: Secret | None = None) -> str:
    """The version of the Consul agent that answers, once its cluster has a leader."""
    headers = {"X-Consul-Token": token.reveal()} if token else {}
    try:
        with httpx.Client(base_url=url.reveal(), headers=headers, timeout=_SECONDS) as client:
            leader = client.get("/v1/status/leader")
            agent = client.get("/v1/agent/self")
            if 403 in (leader.status_code, agent.status_code):
                raise AccessRefusedError(
                    f"Consul at {url} refuses the token",
                    "set ROLLCALL_CONSUL_TOKEN to one it knows",
                )
            agent.raise_for_status()
            if not leader.raise_for_status().json():
                raise InfraUnavailableError(
                    f"Consul at {url} has no leader", "wait for its election, or mend the cluster"
                )
            return str(agent.json()["Config"]["Version"])
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        raise InfraUnavailableError(
            f"Consul at {url} does not answer as Consul does: {_first_line(error)}",
            "start it, or correct ROLLCALL_CONSUL_URL",
        ) from None


def _libpq(url: SecretUrl) -> str:
    scheme, _, rest = url.reveal().partition("://")
    return f"{scheme.partition('+')[0]}://{rest}"


def _postgres_refusal(url: SecretUrl, told: str) -> AccessRefusedError | InfraUnavailableError:
    told = told.strip().splitlines()[0] if told.strip() else "no reason given"
    reason = told.rpartition("FATAL:")[2].strip()
    if "authentication" in reason or "no password" in reason or "role" in reason:
        return AccessRefusedError(
            f"PostgreSQL at {url} refuses: {reason}", "correct ROLLCALL_DATABASE_URL's credentials"
        )
    if "does not exist" in reason:
        return InfraUnavailableError(
            f"PostgreSQL at {url} refuses: {reason}", "create the database, or name another one"
        )
    return InfraUnavailableError(
        f"PostgreSQL at {url} does not answer: {reason}",
        "start it, or correct ROLLCALL_DATABASE_URL",
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
