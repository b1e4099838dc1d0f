"""Finding consul: named, on PATH, cached, or from the machine's own apt sources."""

from pathlib import Path

import pytest

from models.errors import ConfigurationError, ServerMissingError
from rollcall.consul_binary import cache_folder, find_consul, swapped_sources
from tasks.settings import Settings

DEB822 = """\
Types: deb
# a comment
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main
"""
ONE_LINE = """\
# deb http://commented.example/debian bookworm main
deb [arch=amd64 signed-by=/etc/key.gpg] http://old-style.example/debian bookworm main contrib
deb-src http://source.example/debian bookworm main
deb http://other.example/sdk cloud-sdk-bookworm main
"""


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_machines_own_sources_are_kept_with_another_suite(tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "debian.sources").write_text(DEB822)
    (tmp_path / "sources.list").write_text(ONE_LINE)
    swapped = swapped_sources(tmp_path, "bookworm", "bullseye")
    assert "URIs: http://mirror.example/debian\nSuites: bullseye\nComponents: main" in swapped
    assert "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg" in swapped
    assert "URIs: http://old-style.example/debian" in swapped
    assert "Signed-By: /etc/key.gpg" in swapped
    for unwanted in ("off.example", "commented", "source.example", "other.example", "security"):
        assert unwanted not in swapped


def test_no_sources_of_this_release_give_nothing(tmp_path: Path) -> None:
    assert swapped_sources(tmp_path, "bookworm", "bullseye") == ""


def test_the_named_binary_comes_first(tmp_path: Path) -> None:
    named = program(tmp_path / "named" / "consul")
    on_path = program(tmp_path / "bin" / "consul")
    environ = {"PATH": str(on_path.parent), "HOME": str(tmp_path)}
    assert find_consul(Settings(consul_bin=named), environ) == named
    assert find_consul(Settings(), environ) == on_path


def test_the_cached_copy_comes_before_fetching(tmp_path: Path) -> None:
    cached = program(tmp_path / "cache" / "consul")
    assert find_consul(Settings(cache=tmp_path / "cache"), {"PATH": ""}) == cached


def test_a_named_binary_that_cannot_run_is_an_error_not_a_fallback(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="ROLLCALL_CONSUL_BIN"):
        find_consul(Settings(consul_bin=tmp_path / "missing"), {})


def test_without_consul_and_apt_the_error_says_exactly_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(ServerMissingError) as caught:
        find_consul(Settings(), {"PATH": str(tmp_path), "HOME": str(tmp_path)})
    for remedy in ("PATH", "ROLLCALL_CONSUL_BIN", "ROLLCALL_CONSUL_URL"):
        assert remedy in caught.value.remedy


def test_the_cache_follows_the_users_conventions(tmp_path: Path) -> None:
    assert cache_folder(Settings(), {"HOME": "/h"}) == Path("/h/.cache/rollcall")
    assert cache_folder(Settings(), {"HOME": "/h", "XDG_CACHE_HOME": "/x"}) == Path("/x/rollcall")
    assert cache_folder(Settings(cache=tmp_path), {"HOME": "/h"}) == tmp_path
