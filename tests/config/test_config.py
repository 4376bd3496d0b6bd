"""The settings: their sources and precedence, their faults, and the page with their tables."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command

import monitoring.settings as monitor
import saps.ofm.controller.driver.settings as controller
from saps.config import Address, BrokerSettings, LimitSettings, SettingError, ofgate_io
from saps.config.settings import cluster_fault, name_fault
from saps.config.sources_io import KNOBS, Program, faults_of_file, load, variable_of
from saps.frontend.mqtt.limits import Limits
from saps.overlay.membership.failure_detector import DetectorSettings

ROOT = Path(__file__).resolve().parents[2]

COMPLETE = """\
name = "b1"
cluster = "tokyo/ward1"
mqtt = "0.0.0.0:1884"
join = ["127.0.0.1:7301", "[::1]:7302"]
log_level = "debug"

[overlay]
listen = "127.0.0.1:7310"
heartbeat_interval = 0.2
suspect_after = 2
"""


def write(folder: Path, text: str) -> Path:
    file = folder / "saps.toml"
    file.write_text(text)
    return file


def test_the_components_get_their_settings_unaltered() -> None:
    settings = BrokerSettings(name="b")
    assert LimitSettings.__struct_fields__ == Limits.__struct_fields__
    assert settings.limits.limits() == Limits()
    assert settings.overlay.detector() == DetectorSettings()
    changed = LimitSettings(**{name: getattr(Limits(), name) + 1 for name in LimitSettings.__struct_fields__})
    assert msgspec.structs.asdict(changed.limits()) == msgspec.structs.asdict(changed)


def test_a_name_is_all_a_broker_needs() -> None:
    settings = load({"name": "b1"}).settings
    assert settings == BrokerSettings(name="b1")
    assert settings.mqtt == Address("127.0.0.1", 1883)
    assert settings.overlay.listen == Address("127.0.0.1", 7300)


def test_all_defaults_satisfy_their_own_bounds() -> None:
    for knob in KNOBS.values():
        if isinstance(knob.default, int | float):
            assert msgspec.convert(knob.default, knob.type) == knob.default


def test_every_knob_has_a_unit_and_a_cost_if_it_is_a_quantity() -> None:
    for knob in KNOBS.values():
        assert knob.about.text
        if isinstance(knob.default, int | float) and not isinstance(knob.default, bool):
            assert knob.about.unit, knob.name
            assert knob.about.cost, knob.name


def test_a_file_is_read_in_full(tmp_path: Path) -> None:
    settings = load(file=write(tmp_path, COMPLETE)).settings
    assert settings.name == "b1"
    assert settings.cluster == "tokyo/ward1"
    assert settings.mqtt == ("0.0.0.0", 1884)
    assert settings.join == (("127.0.0.1", 7301), ("::1", 7302))
    assert settings.log_level == "debug"
    assert settings.overlay.listen.port == 7310
    assert settings.overlay.heartbeat_interval == 0.2
    assert settings.overlay.suspect_after == 2.0


@pytest.mark.parametrize(
    ("setting", "flag", "variable", "line"),
    [
        ("name", "f", "e", 'name = "t"'),
        ("cluster", "f", "e", 'cluster = "t"'),
        ("overlay.join_timeout", "1", "2", "overlay.join_timeout = 3"),
        ("overlay.listen", "f:1", "e:1", 'overlay = "t:1"'),
    ],
)
def test_flags_win_over_environment_over_file(
    tmp_path: Path, setting: str, flag: str, variable: str, line: str
) -> None:
    def seen(loaded: Any) -> str:
        value: Any = loaded.settings
        for part in setting.split("."):
            value = getattr(value, part)
        return str(value)

    file = write(tmp_path, line)
    flags, environ = {setting: flag}, {variable_of(setting): variable}
    base = {} if setting == "name" else {"name": "b"}
    kind = float if setting.endswith("timeout") else str
    assert seen(load(base | flags, environ, file)) == str(kind(flag))
    assert seen(load(base, environ, file)) == str(kind(variable))
    assert seen(load(base, {}, file)) == str(kind(line.rpartition("= ")[2].strip('"')))


def test_the_environment_gives_lists_numbers_and_the_overlay_address() -> None:
    environ = {
        "SAPS_NAME": "b1",
        "SAPS_JOIN": "a:1, b:2",
        "SAPS_OVERLAY": "c:3",
        "SAPS_OVERLAY__HEARTBEAT_INTERVAL": "0.25",
        "SAPS_CONFIG": "not-a-setting",
        "SAPS_URL": "https://b1.example.org:8080",
        "PATH": "/bin",
    }
    settings = load(environ=environ).settings
    assert settings.join == (("a", 1), ("b", 2))
    assert settings.overlay.listen == ("c", 3)
    assert settings.overlay.heartbeat_interval == 0.25


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nam = 'x'", "nam ({file}:1): there is no such setting; did you mean name?"),
        (
            "\nheartbeat_interval = 1",
            "heartbeat_interval ({file}:2): there is no such setting; did you mean ",
        ),
        (
            "[overlay]\nhearbeat_interval = 1",
            "overlay.hearbeat_interval ({file}:2): there is no such setting; did ",
        ),
        (
            "[overlya]\nlisten = 'a:1'",
            "overlya.listen ({file}:2): there is no such setting; did you mean overlay.",
        ),
        ("mqtt = 1883", "mqtt ({file}:1): 1883 is not an address: expected text such as "),
        (
            "mqtt = '::1:1883'",
            "mqtt ({file}:1): '::1:1883' is not an address: write an IPv6 host in brackets",
        ),
        ("mqtt = 'https://h:1'", "mqtt ({file}:1): 'https://h:1' is not an address: expected host:port"),
        ("mqtt = 'h:65536'", "mqtt ({file}:1): 'h:65536' is not an address: the port must be"),
        ("join = 7301", "join ({file}:1): 7301 is not a list of addresses"),
        ("join = [\n  'a:1',\n  'b',\n]", "join ({file}:1): 'b' is not an address"),
        ("join = ['a:0']", "join ({file}:1): port 0 cannot be joined"),
        ("name = 'a b'", "name ({file}:1): 'a b' must be 1 to 63 letters"),
        ("cluster = 'tokyo//x'", "cluster ({file}:1): 'tokyo//x': level '' must be 1 to 63 letters"),
        ("log_level = 'loud'", "log_level ({file}:1): 'loud' does not fit: expected 'debug' or 'info' or "),
        (
            "overlay = { join_timeout = 0 }",
            "overlay.join_timeout ({file}:1): 0 does not fit: expected float > 0",
        ),
        (
            "overlay.join_timeout = '5'",
            "overlay.join_timeout ({file}:1): '5' does not fit: expected float, got str",
        ),
        ("[overlay]\nsuspect_after = 0.6", "overlay.suspect_after ({file}:2): 0.6 s must be at least twice "),
        (
            "[overlay]\nlisten = '127.0.0.1:1883'",
            "overlay.listen ({file}:2): 127.0.0.1:1883 is the address of mqtt",
        ),
        ("join = ['127.0.0.1:7300']", "join ({file}:1): 127.0.0.1:7300 is this broker's own overlay address"),
        ("mqtt = ", "config: {file} is not valid TOML: "),
        ("mqtt = {}", "mqtt ({file}:1): {{}} is not an address"),
        ("[mqt]", "mqt ({file}): there is no such setting; did you mean mqtt?"),
        ("overlay.join_timeout = nan", "overlay.join_timeout ({file}:1): nan does not fit"),
    ],
)
def test_a_fault_in_the_file_is_one_line_with_setting_place_and_cause(tmp_path: Path, text: str, message: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(SettingError) as caught:
        load({} if text.startswith("name") else {"name": "b1"}, {}, file)
    line = str(caught.value)
    assert line.startswith(message.format(file=file))
    assert "\n" not in line
    assert [str(fault) for fault in faults_of_file(file)] == [line]


def test_check_finds_all_faults_at_once(tmp_path: Path) -> None:
    file = write(tmp_path, "nam = 'x'\nmqtt = '1'\n[overlay]\nlisten = 'a:b'\n")
    assert [fault.setting for fault in faults_of_file(file)] == ["nam", "mqtt", "overlay.listen"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"config: cannot read .*nowhere\.toml: No such file"):
        load(file=tmp_path / "nowhere.toml")


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "saps.toml"
    file.write_bytes(b"name = '\xff'")
    with pytest.raises(SettingError, match=r"config: .* is not valid TOML"):
        load(file=file)


def test_a_missing_name_says_how_to_give_one() -> None:
    with pytest.raises(SettingError, match="name: is missing: give --name, SAPS_NAME or"):
        load()


@pytest.mark.parametrize(
    ("flags", "environ", "place"),
    [
        ({"mqtt": "x"}, {}, "flag --mqtt"),
        ({"overlay.listen": "x"}, {}, "flag --overlay"),
        ({"overlay.join_timeout": "x"}, {}, "flag --set"),
        ({}, {"SAPS_OVERLAY__SUSPECT_AFTER": "soon"}, "variable SAPS_OVERLAY__SUSPECT_AFTER"),
        ({}, {"SAPS_MQT": "a:1"}, "variable SAPS_MQT"),
    ],
)
def test_a_fault_names_its_flag_or_variable(flags: dict[str, str], environ: dict[str, str], place: str) -> None:
    with pytest.raises(SettingError) as caught:
        load({"name": "b"} | flags, environ)
    assert caught.value.source == place


def test_a_fault_at_run_time_is_located(tmp_path: Path) -> None:
    loaded = load({"name": "b"}, {}, write(tmp_path, "\noverlay = '127.0.0.1:7301'"))
    located = loaded.locate(SettingError("overlay", "address already in use"))
    assert str(located) == f"overlay ({tmp_path}/saps.toml:2): address already in use"
    assert loaded.locate(SettingError("mqtt", "address already in use")).source == "default"


hosts = st.sampled_from(["localhost", "127.0.0.1", "::1", "gw-7.example", "fe80::1%eth0"])


@given(hosts, st.integers(0, 65535))
def test_an_address_reads_back_as_written(host: str, port: int) -> None:
    address = Address(host, port)
    assert Address.parse(str(address)) == address


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_a_value_error(text: str) -> None:
    address, error = None, ""
    try:
        address = Address.parse(text)
    except ValueError as caught:
        error = str(caught)
    if address is None:
        assert repr(text) in error
    else:
        assert address.host
        assert 0 <= address.port <= 65535


@given(st.dictionaries(st.text(max_size=12), st.text(max_size=12), max_size=4))
def test_no_environment_makes_loading_fail_otherwise_than_with_a_setting_error(
    environ: dict[str, str],
) -> None:
    given_here = {"SAPS_" + key: value for key, value in environ.items()}
    source: str | None = "variable SAPS_"
    try:
        load({"name": "b"}, given_here)
    except SettingError as error:
        source = error.source
    assert source is not None
    assert source.startswith("variable SAPS_")


@pytest.mark.parametrize("name", ["b1", "gw-7.tokyo_1", "0"])
def test_good_names(name: str) -> None:
    assert name_fault(name) is None
    assert cluster_fault(name) is None


@pytest.mark.parametrize("name", ["", "-x", "a/b", "a b", "é", "x" * 64, "a\n"])
def test_bad_names(name: str) -> None:
    assert name_fault(name) is not None


@pytest.mark.parametrize("path", ["/a", "a/", "a//b", "a/ /b", "/".join("abcdefghi")])
def test_bad_cluster_paths(path: str) -> None:
    assert cluster_fault(path) is not None


def test_the_page_has_the_tables_of_these_settings() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/settings_table.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


FLAGS = {
    "saps.cli.broker": "name cluster mqtt overlay alm join* web* upstream log-level set*",
    "saps.cli.controller": "listen northbound ofm-range addresses topic-code topics loopback parallel-links "
    "flow-budget spanning-tree "
    "bucket-budget meter state peer takeover token-file certificate clients client-names revoked openflow-certificate "
    "openflow-clients grace probe-interval planner planes clusters capacities demands move-share move-overlap policy "
    "log-level install-completion! show-completion!",
    "saps.cli.ofgate": "controller* join* name cluster overlay mode except* domain* token-file lease exploit* "
    "decisions decisions-token-file decisions-from* decide switch-counts log-level set* "
    "install-completion! show-completion!",
    "monitoring.cli": "source source-password-file kafka-options tables ofgate* state master once! interval window "
    "lateness horizon hysteresis least dwell budget* network budgets budgets-token-file both! token-file certificate "
    "authority memory partitions metrics event-log log-level install-completion! show-completion!",
}
"""Options by command, as they were written by hand. ``*``: to be repeated; ``!``: without a value."""


@pytest.mark.parametrize("module", FLAGS)
def test_the_declarations_give_the_options_that_were_written_by_hand(module: str) -> None:
    command: Any = get_command(importlib.import_module(module).app)
    found = {
        option.opts[0].removeprefix("--") + "*" * option.multiple + "!" * option.is_flag for option in command.params
    }
    assert found == {*FLAGS[module].split(), "config"}


OFGATE = ofgate_io.PROGRAM
CONTROLLER = controller.PROGRAM
MONITOR = monitor.PROGRAM


def test_programs_share_a_file_and_an_environment(tmp_path: Path) -> None:
    file = tmp_path / "saps.toml"
    file.write_text(
        'name = "b1"\nlinks.plain = true\nlog_level = "error"\n'
        '[ofgate]\ncontroller = ["http://a", "http://b"]\nexploit = ["a,b"]\n'
        '[controller]\nlisten = "127.0.0.1:1"\nstate = "/s"\n[monitor]\nsource = "/c"\nwindow = "10m"\nlateness = 30\n'
    )
    environ = {"SAPS_CONTROLLER__GRACE": "3", "SAPS_MONITOR__ONCE": "true", "SAPS_CLUSTER": "osaka"}
    assert faults_of_file(file) == []
    broker = load({}, environ, file).settings
    assert (broker.name, broker.cluster, broker.log_level) == ("b1", "osaka", "error")
    gate = OFGATE.load({}, environ, file).settings
    assert (gate.name, gate.cluster, gate.log_level, gate.links.plain) == ("ofgate", "local", "info", True)
    assert (gate.overlay.listen, gate.mqtt) == (Address("127.0.0.1", 7399), Address("127.0.0.1", 0))
    assert (gate.ofgate.controller, gate.ofgate.exploit) == (("http://a", "http://b"), ("a,b",))
    ofc = CONTROLLER.load({"controller.listen": "127.0.0.1:2"}, environ, file).settings
    assert (ofc.listen, ofc.state, ofc.grace) == (Address("127.0.0.1", 2), Path("/s"), 3.0)
    job = MONITOR.load({}, environ, file).settings
    assert (job.source, job.once, job.window, job.lateness) == ("/c", True, 600.0, 30.0)


def test_flags_of_ofgate_stand_over_its_table_and_a_brokers_settings(tmp_path: Path) -> None:
    file = tmp_path / "saps.toml"
    file.write_text('join = ["a:1"]\n[ofgate]\ncontroller = ["http://a"]\nname = "g1"\n')
    assert OFGATE.load({}, {}, file).settings.name == "g1"
    loaded = OFGATE.load({"ofgate.name": "g2", "join": "b:2,c:3", "overlay.listen": "127.0.0.1:9"}, {}, file).settings
    assert (loaded.name, loaded.join) == ("g2", (Address("b", 2), Address("c", 3)))
    assert loaded.overlay.listen == Address("127.0.0.1", 9)


def test_every_program_refuses_its_own_faults_and_passes_over_those_of_others(tmp_path: Path) -> None:
    file = tmp_path / "saps.toml"
    file.write_text(
        '[controller]\nlisten = "x"\n[ofgate]\nleese = 3\n[monitor]\nsource = "/c"\nwindow = "8d"\nbudget = ["x"]\n'
    )
    faults = [f"{error.setting}:{(error.source or '').rpartition(':')[2]}" for error in faults_of_file(file)]
    assert faults == ["controller.listen:2", "ofgate.leese:4", "monitor.window:7", "monitor.budget:8"]
    load({"name": "b1"}, {}, file)
    for program in (CONTROLLER, OFGATE, MONITOR):
        with pytest.raises(SettingError, match=program.table or "ofgate"):
            program.load({}, {}, file)


@pytest.mark.parametrize(("program", "missing"), [(OFGATE, "ofgate.controller"), (MONITOR, "monitor.source")])
def test_a_missing_value_is_told_with_its_flag_and_variable(program: Program[Any], missing: str) -> None:
    with pytest.raises(SettingError, match="is missing") as refused:
        program.load()
    assert refused.value.setting == missing
    for words in (program.flag_of(missing), variable_of(missing)):
        assert words in refused.value.message


def test_the_monitor_wants_certificate_and_authority_together() -> None:
    with pytest.raises(SettingError, match="belong together"):
        MONITOR.load({"monitor.source": "/c", "monitor.certificate": "/x"})


@pytest.mark.parametrize(("text", "decide"), [("1", 1.0), ("0.5", 0.5)])
def test_a_number_that_may_be_left_out_keeps_its_bounds(text: str, decide: float) -> None:
    flags = {"ofgate.controller": "http://a", "join": "127.0.0.1:7300"}
    assert OFGATE.load(flags | {"ofgate.decide": text}, {}).settings.ofgate.decide == decide
    assert OFGATE.load(flags, {}).settings.ofgate.decide is None
    with pytest.raises(SettingError):
        OFGATE.load(flags | {"ofgate.decide": "0.1"}, {})
