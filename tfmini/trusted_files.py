"""Files that grant something: keys, lists of keys, invitations, addresses. Who may have written one?

The rule is that of OpenSSH's StrictModes. The file and all folders on the way to it belong to this user or to root, and
no other user can write them. In a folder with the sticky bit, such as /tmp, others may add entries of their own: such a
folder may be on the way, since what they add belongs to them. A group is no other user if it has the user's name and no
other member. Nothing above the user's home folder is checked.

The check of a file reads the opened descriptor. Nobody can exchange the file between the check and the reading.
"""

from __future__ import annotations

import contextlib
import functools
import grp
import os
import pwd
import secrets
import stat
from collections.abc import Iterator
from typing import BinaryIO

from tfmini import errors

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_USE = stat.S_IRWXG | stat.S_IRWXO
_MOST_LINKS = 40  # in one path, as in Linux


def open_trusted(path: str, private: bool = False) -> BinaryIO:
    """Opens a file for reading, after the check of the module.

    Args:
      private: other users must not be able to read it, either.

    Raises:
      OSError: it cannot be opened.
      errors.PermissionDeniedError: others may have written it (or can read it); the text says what helps.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # else somebody's pipe of that name would block
    file = os.fdopen(fd, "rb")
    if problem := problem_of(path, os.fstat(fd), private):
        file.close()
        raise errors.PermissionDeniedError.of(problem)
    return file


def problem_of(path: str, found: os.stat_result, private: bool = False) -> str:
    """Why a file is not to be trusted, with what helps; "" if it is.

    Args:
      found: of the opened file, if its content is used.
    """
    if not stat.S_ISREG(found.st_mode):
        return f"{path} is no regular file."
    if problem := _owner_problem(path, found.st_uid):
        return problem
    # A file of root that this user reads by its group: root has chosen the group, as Kubernetes does for a Secret.
    shared = _OTHERS_USE if found.st_uid == os.geteuid() else _OTHERS_USE & ~stat.S_IRGRP
    if private and found.st_mode & shared:
        return f"Other users can read the file {path} (mode {stat.S_IMODE(found.st_mode):o}); run: chmod 600 {path}"
    return _write_problem(path, found) or _way_problem(path)


def check_folder(path: str) -> None:
    """Checks a folder in which a file that grants something is, or will be.

    Raises:
      OSError: there is no such folder.
      errors.PermissionDeniedError: other users can exchange what is in it; the text says what helps.
    """
    if not stat.S_ISDIR(os.stat(path).st_mode):
        raise NotADirectoryError(f"{path} is no folder")
    if problem := _way_problem(os.path.join(path, "file")):
        raise errors.PermissionDeniedError.of(problem)


def make_folder(path: str) -> None:
    """Makes a folder, and what is missing above it, for this user alone; checks it in any case.

    Raises:
      OSError: it cannot be made.
      errors.PermissionDeniedError: see `check_folder`.
    """
    missing = []
    while not os.path.isdir(path) and path not in ("", "/"):
        missing.append(path)
        path = os.path.dirname(path)
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process was faster
            os.mkdir(each, 0o700)
    check_folder(missing[0] if missing else path or ".")


def write_trusted(path: str, content: bytes, mode: int = 0o600) -> None:
    """Writes a file in place of what was there. Readers see the whole old or the whole new file.

    It gets a new name that nobody can guess first, and is never written through a file or link of somebody else.

    Raises:
      OSError: it cannot be written.
      errors.PermissionDeniedError: see `check_folder`.
    """
    folder, name = os.path.split(path)
    check_folder(folder or ".")
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(16)}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


# ---------------------------------------------------------------- the rule


def _owner_problem(path: str, uid: int) -> str:
    own = os.geteuid()
    if uid in (0, own):
        return ""
    return (
        f"{path} belongs to {_user(uid)}, who could change it, and not to {_user(own)} or root. Remove it, or run as "
        f"its owner, or (if its content is right) run: chown {_user(own)} {path}"
    )


def _write_problem(path: str, found: os.stat_result) -> str:
    can = found.st_mode & _OTHERS_WRITE
    is_shared = can != stat.S_IWGRP or found.st_uid != os.geteuid() or not _is_own_group(found.st_gid, found.st_uid)
    if not can or not is_shared:
        return ""
    return f"Other users can write {path} (mode {stat.S_IMODE(found.st_mode):o}); run: chmod go-w {path}"


def _way_problem(path: str) -> str:
    """What is wrong with the folders and symbolic links on the way to a file."""
    home = home_of(os.geteuid())
    is_at_home = bool(home) and os.path.realpath(path).startswith(f"{home}/")
    for step in _steps(path):
        if is_at_home and f"{home}/".startswith(f"{step.rstrip('/')}/") and step != home:
            continue
        try:
            found = os.lstat(step)
        except OSError:
            return f"{step} has gone while it was checked."
        if not (stat.S_ISDIR(found.st_mode) and found.st_uid == _unknown_root()) and (
            problem := _owner_problem(step, found.st_uid)
        ):
            return problem
        is_open = stat.S_ISDIR(found.st_mode) and not found.st_mode & stat.S_ISVTX
        if is_open and (problem := _write_problem(step, found)):
            return problem
    return ""


def _steps(path: str) -> Iterator[str]:
    """The folders and symbolic links through which a path leads, from the root on, without the file itself."""
    here, links = "/", 0
    names = (path if os.path.isabs(path) else os.path.join(os.getcwd(), path)).split("/")[::-1]
    yield here
    while names:
        name = names.pop()
        if name in ("", ".", ".."):
            here = os.path.dirname(here) if name == ".." else here
            continue
        step = os.path.join(here, name)
        try:
            target = os.readlink(step)
        except OSError:  # no link, or not there yet
            here = step
            if names:
                yield step
            continue
        yield step
        links += 1
        if links > _MOST_LINKS:
            return
        here = "/" if target.startswith("/") else here
        names += target.split("/")[::-1]


@functools.cache
def home_of(uid: int) -> str:
    """This user's home folder by the user database, which a variable cannot change; "" if there is none."""
    try:
        found = os.path.realpath(pwd.getpwuid(uid).pw_dir)
    except KeyError:
        return ""
    return found if found != "/" else ""


@functools.cache
def _unknown_root() -> int:
    """The owner that folders of the host's root show in a user namespace that does not contain that root; else -1."""
    try:
        with open("/proc/self/uid_map") as file:
            inside, outside, _ = file.readline().split()
        if inside == outside == "0":
            return -1
        with open("/proc/sys/kernel/overflowuid") as file:
            return int(file.read())
    except (OSError, ValueError):
        return -1


@functools.cache
def _is_own_group(gid: int, uid: int) -> bool:
    """Whether a group has nobody but this user in it."""
    try:
        user, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    except KeyError:
        return False
    if uid == 0 or user.pw_gid != gid or user.pw_name != group.gr_name or not set(group.gr_mem) <= {user.pw_name}:
        return False
    return all(other.pw_gid != gid or other.pw_uid == uid for other in pwd.getpwall())


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
