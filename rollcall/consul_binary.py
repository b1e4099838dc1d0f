"""Finds a consul binary: named, on PATH, cached, or the distribution's own package."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from models.errors import ConfigurationError, ServerMissingError
from tasks.settings import Settings

# The last Debian release that packages Consul; its static binary runs on later ones as it is.
_SUITE_WITH_CONSUL = "bullseye"
_REMEDY = (
    "install Consul and put it on PATH, set ROLLCALL_CONSUL_BIN to its binary,"
    " or set ROLLCALL_CONSUL_URL to a running agent"
)


def find_consul(settings: Settings, environ: Mapping[str, str] | None = None) -> Path:
    """The binary to run; fetched into the cache when it is nowhere else."""
    environ = os.environ if environ is None else environ
    if settings.consul_bin is not None:
        if not os.access(settings.consul_bin, os.X_OK) or settings.consul_bin.is_dir():
            raise ConfigurationError(
                f"ROLLCALL_CONSUL_BIN is {str(settings.consul_bin)!r}, which cannot be run",
                "it takes the path of a consul binary",
            )
        return settings.consul_bin.resolve()
    on_path = shutil.which("consul", path=environ.get("PATH", ""))
    if on_path:
        return Path(on_path).resolve()
    cached = cache_folder(settings, environ) / "consul"
    if not os.access(cached, os.X_OK):
        _fetch(cached, environ)
    return cached


def cache_folder(settings: Settings, environ: Mapping[str, str]) -> Path:
    """Where what was fetched once is kept."""
    if settings.cache is not None:
        return settings.cache.resolve()
    if environ.get("XDG_CACHE_HOME"):
        return Path(environ["XDG_CACHE_HOME"]) / "rollcall"
    return Path(environ.get("HOME", tempfile.gettempdir())) / ".cache" / "rollcall"


def _fetch(target: Path, environ: Mapping[str, str]) -> None:
    """Take the package from the machine's own apt sources, in a private folder of ours."""
    path = environ.get("PATH", "")
    if not (shutil.which("apt-get", path=path) and shutil.which("dpkg-deb", path=path)):
        raise ServerMissingError("no consul binary was found, and there is no apt here", _REMEDY)
    codename = _codename(Path("/etc/os-release"))
    sources = swapped_sources(Path("/etc/apt"), codename, _SUITE_WITH_CONSUL)
    if not sources:
        raise ServerMissingError(
            "no consul binary was found, nor apt sources to take it from", _REMEDY
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="consul-", dir=target.parent) as folder:
            unpacked = _download(Path(folder), sources, environ)
            unpacked.chmod(0o755)
            unpacked.replace(target)
    except subprocess.CalledProcessError as error:
        told = (error.stderr or b"").decode(errors="replace").strip().splitlines()
        raise ServerMissingError(
            f"no consul binary was found, and apt could not fetch it: {' '.join(told[-1:])}",
            _REMEDY,
        ) from None
    except OSError as error:
        raise ServerMissingError(
            f"consul cannot be kept in {target.parent}: {error.strerror}",
            "set ROLLCALL_CACHE to a folder that can be written",
        ) from None


def _download(folder: Path, sources: str, environ: Mapping[str, str]) -> Path:
    for name in ("lists/partial", "archives/partial", "sources"):
        (folder / name).mkdir(parents=True)
    (folder / "sources" / "rollcall.sources").write_text(sources)
    apt = ["apt-get", "-q", "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root"]
    for option, value in {
        "Dir::State::Lists": folder / "lists",
        "Dir::Cache": folder,
        "Dir::Cache::Archives": folder / "archives",
        "Dir::Etc::SourceList": "/dev/null",
        "Dir::Etc::SourceParts": folder / "sources",
        "Acquire::Languages": "none",
    }.items():
        apt += ["-o", f"{option}={value}"]
    for command in ([*apt, "update"], [*apt, "download", "consul"]):
        subprocess.run(command, cwd=folder, env=dict(environ), check=True, capture_output=True)
    package = next(folder.glob("consul_*.deb"))
    subprocess.run(
        ["dpkg-deb", "-x", str(package), str(folder / "root")],
        env=dict(environ),
        check=True,
        capture_output=True,
    )
    return folder / "root" / "usr" / "bin" / "consul"


def swapped_sources(apt: Path, codename: str, suite: str) -> str:
    """The machine's own sources of its release, as if it were another release."""
    entries = [*_deb822_entries(apt, codename), *_one_line_entries(apt, codename)]
    return "\n".join(
        f"Types: deb\nURIs: {uri}\nSuites: {suite}\nComponents: main\n"
        + (f"Signed-By: {key}\n" if key else "")
        for uri, key in dict.fromkeys(entries)
    )


def _deb822_entries(apt: Path, codename: str) -> Iterator[tuple[str, str]]:
    for path in sorted(apt.glob("sources.list.d/*.sources")):
        for stanza in re.split(r"\n\s*\n", path.read_text()):
            fields = dict(re.findall(r"^([A-Za-z-]+):[ \t]*(.*)$", stanza, re.MULTILINE))
            if codename in fields.get("Suites", "").split() and fields.get("Enabled") != "no":
                for uri in fields.get("URIs", "").split():
                    yield uri, fields.get("Signed-By", "")


def _one_line_entries(apt: Path, codename: str) -> Iterator[tuple[str, str]]:
    for path in (apt / "sources.list", *sorted(apt.glob("sources.list.d/*.list"))):
        if path.exists():
            for options, uri in re.findall(
                rf"^\s*deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+{re.escape(codename)}\s",
                path.read_text(),
                re.M,
            ):
                key = re.search(r"signed-by=(\S+)", options)
                yield uri, key.group(1) if key else ""


def _codename(os_release: Path) -> str:
    if not os_release.exists():
        return ""
    found = re.search(r"^VERSION_CODENAME=\"?(\w+)", os_release.read_text(), re.MULTILINE)
    return found.group(1) if found else ""
