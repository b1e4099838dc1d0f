"""The unprivileged account that servers run as when Rollcall itself was started by root."""

import os
import pwd
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Account:
    """Somebody with no rights: PostgreSQL refuses root, and the others need none either."""

    name: str
    uid: int
    gid: int

    def owns(self, folder: Path) -> Path:
        """Make the folder and give it to the account, closed to everybody else."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chown(folder, self.uid, self.gid)
        return folder

    def reaches(self, path: Path) -> bool:
        """Whether every folder above the path lets strangers through."""
        return all(parent.stat().st_mode & stat.S_IXOTH for parent in path.resolve().parents)

    def runs(self, program: Path) -> bool:
        """Whether the account may read and run this file."""
        wanted = stat.S_IXOTH | stat.S_IROTH
        return self.reaches(program) and program.stat().st_mode & wanted == wanted

    def copied(self, source: Path, target: Path) -> Path:
        """A copy of a program's folder that the account reaches, made once and whole."""
        if not target.exists():
            half = target.with_name(f"{target.name}.{os.getpid()}")
            shutil.copytree(source, half, symlinks=True)
            for path in (half, *half.rglob("*")):
                if not path.is_symlink():
                    path.chmod(
                        path.stat().st_mode | stat.S_IROTH | (path.stat().st_mode & 0o100) >> 6
                    )
            half.rename(target)
        return target


def server_account() -> Account | None:
    """Whom to run servers as: None means as ourselves."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam("nobody")
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
