"""Keys: a server admits only holders of a CURVE key, on a network, on loopback and on a Unix socket.

Every server and client loads a key pair from a file: the one that ``TFMINI_KEYS`` names, or the key of
this user, which is made on first use. Tasks that share a pair admit each other. Beside a key file, a list
can admit further public keys: one per line, then a name; ``#`` begins a comment. It is read again
when it changes, so removing a line revokes a key. ``TFMINI_INSECURE=1`` means: no keys, everyone is
admitted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import zmq
import zmq.auth
from zmq.utils import z85

from tfmini import errors
from tfmini.rpc.forks import PerProcess
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.zmq_pump import get_context
from tfmini.text import printable
from tfmini.trusted_files import make_folder, open_trusted, problem_of

_log = logging.getLogger("tfmini.rpc")

INSECURE_ENV = "TFMINI_INSECURE"
KEYS_ENV = "TFMINI_KEYS"
_SECRET_SUFFIX = ".key_secret"
_KEY_LENGTH = 40  # characters of a key as Z85 text
_REMEDIES = (
    f"Set {KEYS_ENV} to a key file (`tfmini keys DIRECTORY` makes one), or set {INSECURE_ENV}=1 if every user and host "
    f"that can reach this process is trusted."
)


class AdmittedKeys:
    """The public keys that a file lists; the file is read again when it has changed. No file, no keys."""

    def __init__(self, path: str = "") -> None:
        self.path = path
        self._stamp: tuple[Any, ...] = ()
        self._version = 0
        self._keys: dict[bytes, str] = {}  # with their names

    def version(self) -> int:
        """Reads the file if it has changed; returns a number that grows with each change."""
        try:
            found = os.stat(self.path) if self.path else None
        except OSError:
            found = None
        stamp: tuple[Any, ...] = ()
        if found is not None:  # a folder on the way may have been opened to others, or closed, since
            problem = problem_of(self.path, found)
            stamp = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode, found.st_uid, problem)
        if stamp != self._stamp:
            self._stamp, self._keys = stamp, self._read() if stamp else {}
            self._version += 1
        return self._version

    def __contains__(self, public: bytes) -> bool:
        self.version()
        return public in self._keys

    def name_of(self, public: bytes) -> str:
        """The name that the file gives a key, or ""."""
        return self._keys.get(public, "")

    def _read(self) -> dict[bytes, str]:
        try:
            with open_trusted(self.path) as file:
                words = [line.split() for line in file if not line.lstrip().startswith(b"#")]
        except errors.PermissionDeniedError as error:
            _log.error("The list of admitted keys is ignored, because others may have written it. %s", error.message)
            return {}
        except OSError as error:
            _log.error("The list of admitted keys cannot be read, so it is empty: %s", error)
            return {}
        return {line[0]: b" ".join(line[1:]).decode(errors="replace") for line in words if line}


@dataclasses.dataclass(frozen=True)
class Keys:
    """A CURVE key pair, as Z85 text.

    Args:
      server: the public key of the servers to connect to; b"": they have this same pair.
      file: the file that the pair comes from, for messages.
      admitted: public keys that may connect beside this one.
    """

    public: bytes
    secret: bytes = dataclasses.field(repr=False)
    server: bytes = b""
    file: str = ""
    admitted: AdmittedKeys = dataclasses.field(default_factory=AdmittedKeys, repr=False, compare=False)

    def admits(self, public: bytes) -> bool:
        """Whether the holder of this public key may connect now."""
        return public == self.public or public in self.admitted

    def name_of(self, public: bytes) -> str:
        """Whose key this is, for people."""
        if public == self.public:
            return "the key of the cluster"
        return f"the key of {self.admitted.name_of(public) or public.decode()}"

    def __str__(self) -> str:
        return f"the key of {self.file}" if self.file else f"the key {self.public.decode()}"


def new_keys() -> Keys:
    """Makes a key pair that is in no file."""
    return Keys(*zmq.curve_keypair())


def keys_of_secret(secret: bytes) -> Keys:
    """Returns the key pair of a secret key.

    Raises:
      ValueError: it is none.
    """
    if len(secret) != _KEY_LENGTH:
        raise ValueError(f"a secret key has {_KEY_LENGTH} characters, not {len(secret)}")
    try:
        return Keys(zmq.curve_public(secret), secret)
    except zmq.ZMQError as error:
        raise ValueError(f"no secret key: {error}") from None


def generate_keys(directory: str, name: str = "tfmini", server: bytes = b"") -> str:
    """Creates a key pair, which all tasks of a cluster may share. Returns the path of the secret file.

    The file appears complete, so two processes may try at once: one of them fails.

    Args:
      server: see `Keys`.

    Raises:
      FileExistsError: there is one of that name.
      OSError: the directory cannot be written.
      errors.PermissionDeniedError: other users can write the directory, or a folder above it.
    """
    make_folder(directory)
    secret = os.path.join(directory, name + _SECRET_SUFFIX)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=directory) as private:
        metadata = {"server-key": f'"{server.decode()}"'} if server else None
        public_file, secret_file = zmq.auth.create_certificates(private, name, metadata)
        os.chmod(secret_file, 0o600)
        os.link(secret_file, secret)
        os.replace(public_file, os.path.join(directory, f"{name}.key"))
    return secret


@contextlib.contextmanager
def keys_in_memory() -> Iterator[str]:
    """Makes a key pair for this process and other processes of this user; yields the path of its secret file.

    The file is in memory, so nothing is left behind, however this process ends.
    """
    keys = new_keys()
    with _file_in_memory(b'public-key = "%s"\nsecret-key = "%s"\n' % (keys.public, keys.secret)) as file:
        yield _path_in_memory(file)


def held_key(key: bytes) -> str:
    """Puts the content of a secret file into memory for the rest of this process; returns the path of the file.

    Other processes of this user can read it there, so a child process gets the path.
    """
    file = _file_in_memory(key)
    _held.append(file)
    return _path_in_memory(file)


_held: list[BinaryIO] = []


def _file_in_memory(content: bytes) -> BinaryIO:
    file = os.fdopen(os.memfd_create("tfmini-keys"), "wb")
    os.fchmod(file.fileno(), 0o600)
    file.write(content)
    file.flush()
    return file


def _path_in_memory(file: BinaryIO) -> str:
    return f"/proc/{os.getpid()}/fd/{file.fileno()}"


def load_keys(secret_file: str) -> Keys:
    """Reads a key pair.

    Raises:
      errors.NotFoundError: there is no such file.
      errors.PermissionDeniedError: other users can read it or may have written it, or this one cannot read it.
      errors.InvalidArgumentError: it holds no secret key.
    """
    try:
        with open_trusted(secret_file, private=True) as file:
            values = _values(file)
    except errors.PermissionDeniedError as error:
        raise errors.PermissionDeniedError.of(f"The key file {secret_file!r} is not used. {error.message}") from None
    except PermissionError as error:
        raise errors.PermissionDeniedError.of(f"The key file {secret_file!r} cannot be read: {error}.") from error
    except OSError as error:
        raise errors.NotFoundError.of(
            f"There is no key file {secret_file!r} ({error.strerror}). Correct the path ({KEYS_ENV}, if that names it),"
            " or make a key by `tfmini keys DIRECTORY`."
        ) from error
    public, secret, server = (values.get(name, b"") for name in (b"public-key", b"secret-key", b"server-key"))
    if {len(public), len(secret), len(server or public)} != {_KEY_LENGTH}:
        raise errors.InvalidArgumentError.of(f"{secret_file!r} is not a key file with a public and a secret key.")
    return Keys(public, secret, server, secret_file, AdmittedKeys(admitted_file(secret_file)))


def _values(file: BinaryIO) -> dict[bytes, bytes]:
    """The lines ``name = "value"`` of a certificate."""
    lines = [line.partition(b"=") for line in file if not line.startswith(b"#")]
    return {name.strip(): value.strip(b" \t\r\n'\"") for name, equals, value in lines if equals}


def admitted_file(secret_file: str) -> str:
    """The path of the list of admitted keys that belongs to a key file."""
    return secret_file.removesuffix(_SECRET_SUFFIX) + ".admitted"


def admit(secret_file: str, public: bytes, name: str) -> None:
    """Adds a public key to the list of a key file.

    Raises:
      OSError: the list cannot be written.
      errors.PermissionDeniedError: others may have written the list that is there.
    """
    path = admitted_file(secret_file)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb", buffering=0) as file:
        if problem := problem_of(path, os.fstat(fd)):
            raise errors.PermissionDeniedError.of(problem)
        file.write(b"%s  %s\n" % (public, printable(name).encode()))


def user_key_file() -> str:
    """The path of this user's key, in the user's configuration folder (XDG base directory specification)."""
    configured = os.environ.get("XDG_CONFIG_HOME", "")
    base = configured if os.path.isabs(configured) else os.path.expanduser("~/.config")
    return os.path.join(base, "tfmini", "tfmini" + _SECRET_SUFFIX)


def user_keys() -> Keys:
    """Returns the key pair of this user; makes it on first use.

    Raises:
      errors.FailedPreconditionError: it cannot be made.
      errors.PermissionDeniedError, errors.InvalidArgumentError: see `load_keys`.
    """
    path = user_key_file()
    try:
        if not os.path.isabs(path):
            raise FileNotFoundError("this user has no home directory")
        if not os.path.exists(path):
            with contextlib.suppress(FileExistsError):  # another process was faster
                generate_keys(os.path.dirname(path))
                _log.info("made the key of this user: %s", path)
        return load_keys(path)
    except errors.PermissionDeniedError as error:
        raise errors.PermissionDeniedError.of(f"{error.message} Or choose another key. {_REMEDIES}") from None
    except OSError as error:
        raise errors.FailedPreconditionError.of(
            f"The key of this user cannot be made at {path!r}: {error}. By it, servers and clients of a user admit each"
            f" other and no one else. {_REMEDIES}"
        ) from error


def own_keys(insecure: bool | None = None) -> Keys | None:
    """Returns the keys of this process: of ``TFMINI_KEYS``, or of this user. None: everyone is admitted.

    Args:
      insecure: None: see ``TFMINI_INSECURE``.

    Raises:
      errors.OpError: as `load_keys` and `user_keys`.
    """
    path = os.environ.get(KEYS_ENV, "")
    if path:
        return load_keys(path)
    if insecure is None:
        insecure = os.environ.get(INSECURE_ENV, "") == "1"
    return None if insecure else user_keys()


# ---- Notices that the list of admitted keys has changed, so that a server ends the links of revoked keys -----------
# It has a thread of its own: the file may be on a network file system that does not answer, and the server's heartbeats
# must not wait for it.

PERIOD_S = 0.5


class AdmissionWatch:
    """Calls ``on_change``, in its thread, after each change of the list. Its thread starts at once."""

    def __init__(self, admitted: AdmittedKeys, on_change: Callable[[], object]) -> None:
        self._admitted = admitted
        self._on_change = on_change
        self._version = admitted.version()  # before the first connection is accepted
        self._end = threading.Event()
        threading.Thread(target=self._run, name="tfmini-admissions", daemon=True).start()

    def _run(self) -> None:
        while not self._end.wait(PERIOD_S):
            version = self._admitted.version()
            if version != self._version:
                self._version = version
                self._on_change()

    def close(self) -> None:
        """Ends the thread, without waiting for it: it may be inside a call that does not return."""
        self._end.set()


# ---- Authentication of encrypted connections: a handler of ZeroMQ's ZAP protocol (RFC 27) checks the peer's key ----


class ZapHandler:
    """Authenticates the clients of all listeners of this process; each listener has its own ZAP domain."""

    def __init__(self) -> None:
        self._keys: dict[str, Keys] = {}
        self._serial = itertools.count(1)
        self._sock: Any = get_context().socket(zmq.REP)
        self._sock.linger = 0
        self._sock.bind("inproc://zeromq.zap.01")
        reactor = get_reactor()
        self._source = reactor.source(self._sock.getsockopt(zmq.FD), self._on_ready)
        reactor.watch(self._source)
        reactor.relief.add(self._source.look)

    def secure(self, sock: zmq.Socket[Any], keys: Keys) -> str:
        """Makes ``sock`` an encrypted server for holders of admitted keys; returns its domain."""
        domain = f"tfmini-{next(self._serial)}"
        self._keys[domain] = keys
        sock.zap_domain = domain.encode()
        sock.curve_publickey, sock.curve_secretkey = keys.public, keys.secret
        sock.curve_server = True
        return domain

    def remove(self, domain: str) -> None:
        """Removes a domain: all later connections to it are refused."""
        self._keys.pop(domain, None)

    def _on_ready(self) -> None:
        while self._sock.getsockopt(zmq.EVENTS) & zmq.POLLIN:
            request = self._sock.recv_multipart(zmq.NOBLOCK)
            version, request_id, domain, _, _, mechanism, *credentials = request
            keys = self._keys.get(domain.decode(errors="replace"))
            public = z85.encode(credentials[0]) if mechanism == b"CURVE" else b""
            admitted = bool(public) and keys is not None and keys.admits(public)
            code, text = (b"200", b"OK") if admitted else (b"400", b"key not admitted")
            self._sock.send_multipart([version, request_id, code, text, public, b""], zmq.NOBLOCK)


_handler = PerProcess(ZapHandler)


def get_zap_handler() -> ZapHandler:
    """Returns the handler of this process: a ZeroMQ context can have one."""
    return _handler.get()
