"""Files that grant something are used only if no other user may have written them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tfmini import errors, trusted_files
from tfmini.trusted_files import check_folder, make_folder, open_trusted, write_trusted

OTHER = 65533  # a user that nobody is
by_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    made.mkdir(mode=0o755)
    return made


@pytest.fixture
def file(folder: Path) -> Path:
    made = folder / "list"
    made.write_text("content")
    made.chmod(0o600)
    return made


def refusal(path: Path, private: bool = False) -> str:
    with pytest.raises(errors.PermissionDeniedError) as info:
        open_trusted(str(path), private).close()
    return info.value.message


def test_a_file_of_this_user_that_others_cannot_write_is_read(file: Path) -> None:
    for mode in (0o600, 0o400, 0o644):
        file.chmod(mode)
        with open_trusted(str(file)) as opened:
            assert opened.read() == b"content"


@pytest.mark.parametrize("mode", [0o606, 0o602, 0o666, 0o777, 0o620])
def test_a_file_that_others_can_write_is_refused_with_the_remedy(file: Path, mode: int) -> None:
    file.chmod(mode)
    assert refusal(file) == f"Other users can write {file} (mode {mode:o}); run: chmod go-w {file}"


def test_a_secret_that_others_can_read_is_refused_with_the_remedy(file: Path) -> None:
    file.chmod(0o640)
    assert refusal(file, private=True) == f"Other users can read the file {file} (mode 640); run: chmod 600 {file}"


@pytest.mark.parametrize("mode", [0o777, 0o757])
def test_a_folder_above_that_others_can_write_is_refused(file: Path, folder: Path, mode: int) -> None:
    folder.chmod(mode)
    said = f"Other users can write {folder} (mode {mode:o}); run: chmod go-w {folder}"
    assert refusal(file) == said
    with pytest.raises(errors.PermissionDeniedError, match="chmod go-w"):
        check_folder(str(folder))


def test_a_folder_further_above_is_checked_too(folder: Path) -> None:
    deep = folder / "a" / "b"
    make_folder(str(deep))
    (deep / "file").write_text("x")
    open_trusted(str(deep / "file")).close()
    folder.chmod(0o777)
    assert str(folder) in refusal(deep / "file")
    with pytest.raises(errors.PermissionDeniedError):
        make_folder(str(deep / "c"))


def test_a_folder_with_the_sticky_bit_may_be_above(file: Path, folder: Path) -> None:
    """As /tmp: others cannot rename or remove what is not theirs."""
    folder.chmod(0o1777)
    open_trusted(str(file)).close()
    check_folder(str(folder))


@by_root
def test_the_file_of_another_user_is_refused_also_in_a_folder_with_the_sticky_bit(file: Path, folder: Path) -> None:
    folder.chmod(0o1777)
    os.chown(file, OTHER, -1)
    said = refusal(file)
    assert said.startswith(f"{file} belongs to user {OTHER}") and f"chown root {file}" in said


@by_root
@pytest.mark.parametrize("mode", [0o755, 0o1777])
def test_the_folder_of_another_user_is_refused(file: Path, folder: Path, mode: int) -> None:
    """Its owner can exchange what is in it, the sticky bit or not."""
    folder.chmod(mode)
    os.chown(folder, OTHER, -1)
    assert refusal(file).startswith(f"{folder} belongs to user {OTHER}")


@by_root
def test_the_symbolic_link_of_another_user_is_refused(file: Path, tmp_path: Path) -> None:
    """He could let it lead elsewhere later: to another file of this user."""
    link = tmp_path / "link"
    link.symlink_to(file)
    open_trusted(str(link)).close()
    os.lchown(link, OTHER, -1)
    assert refusal(link).startswith(f"{link} belongs to user {OTHER}")


def test_the_folder_of_a_symbolic_link_is_checked(file: Path, tmp_path: Path) -> None:
    between = tmp_path / "between"
    between.mkdir()
    (between / "link").symlink_to(file)
    (tmp_path / "first").symlink_to(between / "link")
    open_trusted(str(tmp_path / "first")).close()
    between.chmod(0o777)
    assert str(between) in refusal(tmp_path / "first")


@by_root
def test_root_may_own_what_another_user_reads_by_its_group(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the Secret of a pod whose user is not root."""
    file.chmod(0o440)
    assert "chmod 600" in refusal(file, private=True)
    monkeypatch.setattr(trusted_files.os, "geteuid", lambda: OTHER)
    open_trusted(str(file), private=True).close()
    for mode in (0o444, 0o460):
        file.chmod(mode)
        assert "chmod" in refusal(file, private=True)


def test_what_is_no_file_is_refused_and_does_not_block(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    assert refusal(folder / "pipe") == f"{folder / 'pipe'} is no regular file."


def test_a_group_of_this_user_alone_is_no_other_user(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.chmod(0o660)
    assert "chmod go-w" in refusal(file)
    monkeypatch.setattr(trusted_files, "_is_own_group", lambda gid, uid: True)
    open_trusted(str(file)).close()


def test_nothing_above_the_home_folder_is_checked(file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.chmod(0o777)
    home = folder / "me"
    home.mkdir()
    (home / "file").write_text("x")
    assert str(folder) in refusal(home / "file")
    monkeypatch.setattr(trusted_files, "home_of", lambda uid: str(home))
    open_trusted(str(home / "file")).close()
    assert str(folder) in refusal(file)


def test_a_file_in_memory_has_no_folders(tmp_path: Path) -> None:
    fd = os.memfd_create("test")
    os.fchmod(fd, 0o600)
    os.write(fd, b"secret")
    with open_trusted(f"/proc/{os.getpid()}/fd/{fd}", private=True) as file:
        assert file.read() == b"secret"
    os.close(fd)


def test_what_is_written_replaces_the_name_and_follows_no_link(folder: Path) -> None:
    victim = folder / "victim"
    victim.write_text("untouched")
    (folder / "name").symlink_to(victim)
    write_trusted(str(folder / "name"), b"new")
    assert (folder / "name").read_text() == "new" and not (folder / "name").is_symlink()
    assert victim.read_text() == "untouched"
    assert oct((folder / "name").stat().st_mode) == "0o100600"
    assert sorted(path.name for path in folder.iterdir()) == ["name", "victim"]


def test_a_write_that_fails_leaves_nothing(folder: Path) -> None:
    (folder / "name").mkdir()
    with pytest.raises(OSError):
        write_trusted(str(folder / "name"), b"new")
    assert [path.name for path in folder.iterdir()] == ["name"]


def test_folders_are_made_for_this_user_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_folder(str(tmp_path / "a" / "b"))
    finally:
        os.umask(before)
    assert [oct((tmp_path / name).stat().st_mode) for name in ("a", "a/b")] == ["0o40700"] * 2
