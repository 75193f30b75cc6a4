"""Profiles: their files, curves and links."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path

import pytest

from tests.show.simulation.profiles import TEXT, plain
from tfmini.show.simulation.profile import (
    CLASSES,
    LAPTOP,
    OWN,
    SERVERS,
    SHIPPED,
    ChosenProfile,
    Curve,
    ProfileError,
    format_profile,
    parse_profile,
    read_profile,
)


def test_a_profile_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "here.toml"
    path.write_text(format_profile(plain(), "made by\na test"))
    assert read_profile(path) == plain()
    assert path.read_text().startswith("# made by\n# a test\n")
    more = parse_profile(tomllib.loads(TEXT.replace("cores = 2", "cores = 2\nthreads = 8")))
    assert parse_profile(tomllib.loads(format_profile(more))) == more != plain()


def test_a_profile_without_the_cost_of_reductions_takes_that_of_messages() -> None:
    assert plain().local.reduce_s_per_byte == plain().local.copy_s_per_byte == pytest.approx(100e-12)
    other = parse_profile(tomllib.loads(TEXT.replace("us_per_mb = 100", "us_per_mb = 100\nreduce_us_per_mb = 7", 1)))
    assert other.local.reduce_s_per_byte == pytest.approx(7e-12)


def test_a_curve_interpolates_between_its_points() -> None:
    curve = Curve(((100.0, 1e-6), (10_000.0, 1e-4)))
    assert curve(1.0) == 1e-6
    assert math.isclose(curve(1000.0), 1e-5)
    assert math.isclose(curve(20_000.0), 2e-4)


def test_a_rate_is_a_link_with_the_costs_of_tcp() -> None:
    link = plain().link("10Gbit")
    assert (link.bytes_per_s, link.latency_s) == pytest.approx((1.25e9, 50e-6))
    assert plain().link("tcp").bytes_per_s == 1e9
    assert plain().local.bytes_per_s == math.inf
    for name in ("1.25Gbit", "1250Mbps", "1.25 Gb/s", "1.25g"):
        assert plain().link(name).bytes_per_s == pytest.approx(156.25e6)
    for name in ("fast", "0Gbit", "1.2.3Gbit", "10GB"):
        with pytest.raises(ProfileError, match=f"no link '{name}'"):
            plain().link(name)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("cores = 2", "coers = 2", "machines.plain has the unknown field 'coers'"),
        ("cores = 2", "cores = 0", "at least 1"),
        ("cores = 2", "overload = 0.5", "machines.plain.overload .* at least 1"),
        ("cores = 2", "threads = 0", "machines.plain.threads must be at least 1"),
        ("step_us = 100", "step_us = 'x'", "machines.plain.step_us must be a number"),
        ("[1000, 2], [1000000, 100]", "[1000, 2], [1000, 3]", "ascending"),
        ("[1000, 2], [1000000, 100]", "[1000]", "points"),
        ("[links.local]", "[links.other]", r"\[links.local\]"),
        ("[machines.plain]", "[machines.plain", "line"),
        ("[links.local]", "links = 3\n[links.local]", "links|overwrite|line"),
        ("cores = 2", "cores = 1" + "0" * 400, "machines.plain.cores must be a number"),
        ("cores = 2", "cores = " + "[" * 3000, "nested too deeply"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(old: str, new: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(TEXT.replace(old, new))
    with pytest.raises(ProfileError, match=says):
        read_profile(path)


def test_what_is_no_table_or_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    for content in (b"machines = 3", b"machines = {m = 3}", b"links = [1]\nmachines = {m = {kernels = 5}}", b"\xff"):
        path.write_bytes(content)
        with pytest.raises(ProfileError, match="wrong.toml is no profile"):
            read_profile(path)


def test_the_names_of_ops_may_have_any_characters() -> None:
    profile = parse_profile(tomllib.loads(TEXT + '[ops]\n"a/b \\"c\\"" = 12.5\n'))
    assert profile.ops == {'a/b "c"': pytest.approx(12.5e-6)}
    assert parse_profile(tomllib.loads(format_profile(profile))).ops == pytest.approx(profile.ops)


# ---- Profiles that come with tfmini --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_profile_has_what_a_prediction_needs(name: str) -> None:
    found = ChosenProfile.of(name).read()
    machine, tcp = found.machine, found.link("10Gbit")
    measured = {"random"}  # what `tfmini calibrate` leaves to the class elementwise
    assert set(CLASSES) - measured <= set(machine.kernels)
    for curve in machine.kernels.values():  # a larger op never takes less time
        works = [work for work, _ in curve.points]
        assert [curve(work) for work in works] == sorted(curve(work) for work in works)
    assert machine.cores > 1 and 1e-5 < machine.step_s < 1e-3
    assert (tcp.bytes_per_s, found.local.bytes_per_s) == (1.25e9, math.inf)
    assert 1e-6 < tcp.send_s < 1e-4 and 10e-6 < tcp.latency_s < 1e-3
    assert SHIPPED[name].read_text().startswith("# ")  # where its figures come from


def test_a_command_takes_the_profile_of_this_machine_and_else_one_that_comes_with_tfmini(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ChosenProfile.of(None).name == LAPTOP
    assert ChosenProfile.of(None, "1Gbit").name == SERVERS
    assert ChosenProfile.of(LAPTOP, "1Gbit").name == LAPTOP
    for text in (ChosenProfile.of(None).note, ChosenProfile.of(SERVERS).note):
        assert "not this machine's" in text and "tfmini calibrate" in text
    for name in (OWN, SERVERS):  # a file of that name comes first
        Path(name).write_text(TEXT)
        own = ChosenProfile.of(None if name == OWN else name, "1Gbit")
        assert (own.name, own.note, own.read()) == (name, "", plain())
    with pytest.raises(FileNotFoundError, match=rf"There is no absent.toml: .*\(a file, {LAPTOP} or {SERVERS}\)"):
        ChosenProfile.of("absent.toml")
