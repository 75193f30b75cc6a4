"""Keys: made on first use, kept secret, shared by a user's processes; the list of admitted keys; refusals."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.rpc.task_processes import LIMIT_S, Call, until
from tfmini import errors
from tfmini.rpc import messages as m
from tfmini.rpc import messages as m_connection
from tfmini.rpc.codec import decode, encode
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.keys import (
    Keys,
    admit,
    admitted_file,
    generate_keys,
    keys_in_memory,
    load_keys,
    own_keys,
    user_key_file,
    user_keys,
)
from tfmini.rpc.peer import State
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.records import PROTOCOL_VERSION

PS = "/job:ps/replica:0/task:0"


def status(peer: Any, request: Any, respond: Any) -> None:
    respond(m.GetStatusReply(PS, 42, []))


@pytest.fixture
def endpoint() -> Iterator[Any]:
    made: list[Endpoint] = []

    def make(task: str = "", **options: Any) -> Endpoint:
        made.append(Endpoint(get_reactor(), task, len(made) + 1, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def server(endpoint: Any, tmp_path: Path) -> Endpoint:
    """A server with the keys of a cluster."""
    server = endpoint(PS, keys=load_keys(generate_keys(str(tmp_path), "cluster")))
    server.serve({m.GetStatus: status})
    server.address = server.listen("localhost:0")
    return server


def test_keys_are_made_kept_secret_and_loaded(tmp_path: Path) -> None:
    secret = generate_keys(str(tmp_path / "keys"))
    assert stat.S_IMODE(os.stat(secret).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(tmp_path / "keys").st_mode) == 0o700
    assert sorted(os.listdir(tmp_path / "keys")) == ["tfmini.key", "tfmini.key_secret"]
    keys = load_keys(secret)
    assert keys.admits(keys.public)
    assert not keys.admits(b"x" * 40)
    assert keys.secret.decode() not in repr(keys)
    with pytest.raises(FileExistsError):
        generate_keys(str(tmp_path / "keys"))
    os.chmod(secret, 0o644)
    with pytest.raises(errors.PermissionDeniedError, match="chmod 600"):
        load_keys(secret)
    with pytest.raises(errors.NotFoundError):
        load_keys(str(tmp_path / "none"))
    (tmp_path / "bad").write_text("no key")
    (tmp_path / "bad").chmod(0o600)
    with pytest.raises(errors.InvalidArgumentError):
        load_keys(str(tmp_path / "bad"))


def test_the_environment_names_the_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_keys() == load_keys(user_key_file())
    monkeypatch.setenv("TFMINI_INSECURE", "1")
    assert own_keys() is None
    monkeypatch.setenv("TFMINI_KEYS", generate_keys(str(tmp_path)))
    assert own_keys() == load_keys(str(tmp_path / "tfmini.key_secret"))


def test_the_key_of_a_user_is_made_on_first_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    made = user_keys()
    assert made.file == str(tmp_path / "config" / "tfmini" / "tfmini.key_secret")
    assert user_keys() == made
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")  # to be ignored, says the specification
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert user_keys().file == str(tmp_path / "home" / ".config" / "tfmini" / "tfmini.key_secret")


def test_processes_that_race_for_the_first_use_get_one_key(tmp_path: Path) -> None:
    program = "import sys; from tfmini.rpc.keys import user_keys; sys.stdin.read(1); print(user_keys().public)"
    env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    racers = [
        subprocess.Popen([sys.executable, "-c", program], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(4)
    ]
    found = set()
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write(b"g")
        racer.stdin.flush()
    for racer in racers:
        found.add(racer.communicate(timeout=LIMIT_S)[0])
    assert len(found) == 1
    assert sorted(os.listdir(tmp_path / "tfmini")) == ["tfmini.key", "tfmini.key_secret"]


def test_a_folder_that_cannot_be_written_is_named_with_the_remedies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    with pytest.raises(errors.FailedPreconditionError) as info:
        Endpoint(get_reactor(), "", 1)
    for part in (f"{tmp_path}/file/tfmini/tfmini.key_secret", "TFMINI_KEYS", "TFMINI_INSECURE=1"):
        assert part in str(info.value)


# -- the list of admitted keys ------------------------------------------------------------------------------------


def test_the_list_of_admitted_keys_is_read_again_when_it_changes(tmp_path: Path) -> None:
    keys = load_keys(generate_keys(str(tmp_path)))
    guest = zmq.curve_keypair()[0]
    assert not keys.admits(guest)
    admit(keys.file, guest, "a guest")
    listed = Path(admitted_file(keys.file))
    assert stat.S_IMODE(listed.stat().st_mode) == 0o600
    assert keys.admits(guest)
    listed.chmod(0o666)
    assert not keys.admits(guest)  # another user may have added it
    listed.chmod(0o600)
    assert keys.admits(guest)
    listed.write_text("# none at present\n")
    assert not keys.admits(guest)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_list_that_another_user_owns_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys = load_keys(generate_keys(str(tmp_path)))
    guest = zmq.curve_keypair()[0]
    admit(keys.file, guest, "a guest")
    listed = Path(admitted_file(keys.file))
    os.chown(listed, 65533, -1)
    assert not keys.admits(guest)
    assert f"chown root {listed}" in caplog.text
    with pytest.raises(errors.PermissionDeniedError, match="belongs to user 65533"):
        admit(keys.file, guest, "a guest")
    os.chown(listed, 0, -1)
    assert keys.admits(guest)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_key_that_another_user_owns_is_refused(tmp_path: Path) -> None:
    secret = generate_keys(str(tmp_path))
    os.chown(secret, 65533, -1)
    with pytest.raises(errors.PermissionDeniedError, match="chown"):
        load_keys(secret)


def test_keys_and_lists_in_a_folder_that_others_can_write_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    keys = load_keys(generate_keys(str(folder)))
    guest = zmq.curve_keypair()[0]
    admit(keys.file, guest, "a guest")
    folder.chmod(0o777)
    assert not keys.admits(guest)
    for use in (lambda: load_keys(keys.file), lambda: generate_keys(str(folder), "other"), user_key_in(folder)):
        with pytest.raises(errors.PermissionDeniedError, match=f"chmod go-w {folder}") as info:
            use()
    assert "Set TFMINI_KEYS to a key file" in info.value.message  # of the key of the user
    assert not (folder / "other.key_secret").exists()
    folder.chmod(0o700)
    assert keys.admits(guest)


def user_key_in(folder: Path) -> Any:
    def use() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CONFIG_HOME", str(folder))
            user_keys()

    return use


def test_a_name_in_the_list_has_one_line(tmp_path: Path) -> None:
    keys = load_keys(generate_keys(str(tmp_path)))
    first, second = zmq.curve_keypair()[0], zmq.curve_keypair()[0]
    admit(keys.file, first, f"a guest\n{second.decode()}")
    assert keys.admits(first) and not keys.admits(second)


def test_a_key_that_is_revoked_between_the_two_handshakes_is_refused(server: Any, tmp_path: Path) -> None:
    """A connection that was silent until then would have no link yet that the watch of the list could end."""
    cluster = server.keys
    own = load_keys(generate_keys(str(tmp_path), "guest", cluster.public))
    admit(cluster.file, own.public, "guest")
    sock = zmq.Context.instance().socket(zmq.DEALER)
    sock.linger = 0
    sock.curve_publickey, sock.curve_secretkey, sock.curve_serverkey = own.public, own.secret, own.server
    with sock, sock.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED) as monitor:
        sock.connect(server.address)
        assert monitor.poll(LIMIT_S * 1000), "no handshake"
        Path(admitted_file(cluster.file)).unlink()
        hello = m_connection.Hello(PROTOCOL_VERSION, "", 7, "", b"", False, "", 0, 0)
        sock.send_multipart(encode(hello, 1))
        assert sock.poll(LIMIT_S * 1000), "no answer"
        answer, _ = decode(sock.recv_multipart(), True)
        sock.disable_monitor()
    assert isinstance(answer, m_connection.Goodbye) and "has been removed from" in answer.reason


def test_a_key_of_its_own_opens_until_it_is_revoked(server: Any, endpoint: Any, tmp_path: Path) -> None:
    cluster = server.keys
    own = load_keys(generate_keys(str(tmp_path), "guest", cluster.public))
    assert own.server == cluster.public
    guest = endpoint(keys=own).peer(server.address, PS)
    refused = Call(guest, m.GetStatus(), wait_for_ready=True).wait()
    assert isinstance(refused, errors.PermissionDeniedError)
    assert own.public.decode() in refused.message
    admit(cluster.file, own.public, "guest")
    assert isinstance(Call(guest, m.GetStatus()).wait(), m.GetStatusReply)
    Path(admitted_file(cluster.file)).unlink()
    until(lambda: guest.state is State.LOST, "the end of the link")
    assert "has been removed from" in guest.why
    assert isinstance(Call(guest, m.GetStatus(), wait_for_ready=True).wait(), errors.PermissionDeniedError)


def test_a_task_does_not_listen_with_the_key_of_a_client(endpoint: Any, tmp_path: Path) -> None:
    own = load_keys(generate_keys(str(tmp_path), "guest", zmq.curve_keypair()[0]))
    with pytest.raises(errors.FailedPreconditionError, match="belongs to a client of a cluster"):
        endpoint(PS, keys=own).listen("localhost:0")


# -- refusals -----------------------------------------------------------------------------------------------------


def test_a_wrong_key_is_told_at_once(server: Any, endpoint: Any) -> None:
    """The caller would wait for ever otherwise."""
    peer = endpoint().peer(server.address, PS)
    error = Call(peer, m.GetStatus(), wait_for_ready=True).wait()
    assert isinstance(error, errors.UnauthenticatedError)
    for part in (server.address, PS, user_key_file(), "Set TFMINI_KEYS to the key file of the server"):
        assert part in error.message
    again = Call(peer, m.GetStatus()).wait()
    assert isinstance(again, errors.UnauthenticatedError)


def test_no_key_is_told_at_once(server: Any, endpoint: Any) -> None:
    error = Call(endpoint(insecure=True).peer(server.address), m.GetStatus(), wait_for_ready=True).wait()
    assert isinstance(error, errors.UnauthenticatedError)
    assert "this process has none, because TFMINI_INSECURE is set" in error.message


def test_keys_for_an_open_server_are_told_at_once(endpoint: Any) -> None:
    server = endpoint(PS, insecure=True)
    error = Call(endpoint().peer(server.listen("localhost:0")), m.GetStatus(), wait_for_ready=True).wait()
    assert isinstance(error, errors.UnauthenticatedError)
    assert "TFMINI_INSECURE=1" in error.message


def test_an_open_server_is_told_also_if_its_greeting_is_lost(endpoint: Any) -> None:
    """The kernel throws away what a peer has not read yet where the other side closes a connection early."""
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            for _ in range(2):  # attempts; behind each comes the question for the reason
                server.accept()[0].close()
                with server.accept()[0] as asking:
                    asking.sendall(greeting)
                    asking.recv(64)

        thread = threading.Thread(target=accept)
        thread.start()
        address = f"localhost:{server.getsockname()[1]}"
        error = Call(endpoint().peer(address), m.GetStatus(), wait_for_ready=True).wait()
        thread.join(LIMIT_S)
    assert isinstance(error, errors.UnauthenticatedError) and "TFMINI_INSECURE=1" in error.message


def test_a_proxy_whose_server_is_down_is_waited_for(endpoint: Any) -> None:
    """It accepts connections and closes them, which is not what a server with other keys does."""
    accepted = 0
    with socket.create_server(("127.0.0.1", 0)) as proxy:

        def accept() -> None:
            nonlocal accepted
            while accepted < 8:
                proxy.accept()[0].close()
                accepted += 1

        thread = threading.Thread(target=accept)
        thread.start()
        client = endpoint()
        call = Call(client.peer(f"localhost:{proxy.getsockname()[1]}"), m.GetStatus(), wait_for_ready=True)
        until(lambda: accepted == 8, "the eighth connection")
        thread.join(LIMIT_S)
    assert not call.answers


def test_two_keys_of_one_endpoint_are_not_mixed(endpoint: Any) -> None:
    first, second = (endpoint(PS, keys=Keys(*zmq.curve_keypair())) for _ in range(2))
    addresses = []
    for one in (first, second):
        one.serve({m.GetStatus: status})
        addresses.append(one.listen("localhost:0"))
    for keys, good, bad in ((first.keys, *addresses), (second.keys, *reversed(addresses))):
        assert isinstance(Call(endpoint(keys=keys).peer(good), m.GetStatus()).wait(), m.GetStatusReply)
        started = time.monotonic()
        answer = Call(endpoint(keys=keys).peer(bad), m.GetStatus(), wait_for_ready=True).wait()
        assert isinstance(answer, errors.UnauthenticatedError)
        assert time.monotonic() - started < 30


def test_keys_in_memory_go_with_their_process() -> None:
    with keys_in_memory() as path:
        keys = load_keys(path)
        assert keys.admits(keys.public) and len(keys.secret) == 40
        assert subprocess.run(["cat", path], capture_output=True, check=True).stdout.count(b"-key = ") == 2
    with pytest.raises(errors.NotFoundError):
        load_keys(path)
