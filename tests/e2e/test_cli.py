"""The command line as a new user has it: real processes, an empty home, nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.cli import Person, Running, set_up

RECORDER = Path(__file__).parents[1] / "rig/recorder.py"
MORE = f"""
[devices.rec]
driver = "{RECORDER}"
file = "{{record}}"

[capabilities."say.word"]
argv = ["/bin/echo", "the word is {{{{word}}}}"]
tier = 0
replay = "safe"

[capabilities."say.word".args.word]
type = "string"

[capabilities."say.slowly"]
argv = ["sh", "-c", "echo one; sleep 0.8; echo two; echo '{{\\"outcome\\": \\"succeeded\\"}}' > $EDGEPANDA_RESULT"]
tier = 0
replay = "safe"
"""


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    """Somebody new."""
    someone = Person(tmp_path)
    yield someone
    someone.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """Somebody whose site is up."""
    folder = tmp_path_factory.mktemp("site")
    more = MORE.replace("{record}", str(folder / "record")).replace("{{word}}", "{word}")
    with set_up(folder, more) as someone, someone.up():
        yield someone


def test_demo_shows_the_main_job_and_leaves_nothing(person: Person) -> None:
    told = person.ok("demo")
    assert "finished: succeeded, moved to 30 degrees" in told
    assert "read_back_us=1666.667" in told
    assert "commanded_us=1666.667" in told
    assert "met: position within 1 degree" in told
    assert "the ledger holds" in told
    assert "witnesses  desk" in told
    assert person.processes() == []
    assert list(person.temporary.iterdir()) == []
    assert list(person.home.rglob("*")) == []
    assert list(person.folder.iterdir()) == []


def test_demo_in_json_and_with_its_folder_kept(person: Person) -> None:
    found = person.json("demo", "--keep")
    assert found["ok"]
    assert found["task"]["state"] == "succeeded"
    assert found["task"]["result"]["evidence"][0]["simulated"] is True
    assert list(found["proof"]["witnesses"]) == ["desk"]
    proof = person.json("audit", "verify", "--offline", "--config", f"{found['folder']}/edgepanda.toml")
    assert (proof["ok"], proof["head"]) == (True, found["proof"]["head"])
    assert person.processes() == []


def test_demo_that_is_interrupted_leaves_nothing(person: Person) -> None:
    running = person.start("demo")
    running.wait_for("^broker ")
    assert running.end(signal.SIGINT) == 130
    assert person.processes() == []
    assert list(person.temporary.iterdir()) == []


def test_init_twice_changes_nothing(person: Person) -> None:
    first = person.json("init", "--name", "desk", "--site", "cabin")
    assert len(first["made"]) == 6
    config = person.folder / "edgepanda.toml"
    before = {path: path.read_bytes() for path in person.folder.rglob("*") if path.is_file()}
    again = person.json("init", "--name", "other", "--site", "other")
    assert "made" not in again
    assert {key: again[key] for key in ("site", "site_key", "node", "node_key", "operator")} == {
        key: first[key] for key in ("site", "site_key", "node", "node_key", "operator")
    }
    assert before == {path: path.read_bytes() for path in person.folder.rglob("*") if path.is_file()}
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    keys = [*person.folder.rglob("*.key"), *person.home.rglob("*.key")]
    assert [stat.S_IMODE(key.stat().st_mode) for key in keys] == [0o600] * 3


def test_init_on_a_machine_that_joined_makes_no_site_of_its_own(person: Person) -> None:
    key = "ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    joined = person.json("init", "--node-only", "--name", "shed", "--site-key", key, "--broker", "mqtt://broker.lan")
    again = person.json("init")
    assert {**again, "made": joined["made"]} == joined
    assert [file.name for file in person.folder.rglob("*.key")] == ["node.key"]
    assert list(person.home.rglob("*.key")) == []


def test_init_for_a_coordinator_without_a_node(person: Person) -> None:
    (person.folder / "edgepanda.toml").write_text("[coordinator]\n")
    made = person.json("init")
    assert (made["node"], made["site"]) == ("", "home")
    assert [file.name for file in person.folder.rglob("*.key")] == ["site.key"]
    assert person.run("node").returncode == 2


def test_before_init_the_way_is_shown(person: Person) -> None:
    done = person.run("tasks")
    assert done.returncode == 2
    assert "`edgepanda init` makes one" in done.stderr
    assert done.stdout == ""


def test_do_shows_value_and_evidence(site: Person) -> None:
    told = site.ok("do", "pan.move", "30")
    assert "succeeded" in told
    assert "angle=30" in told
    assert "read_back_us=1666.667" in told
    found = site.json("do", "desk/pan.move", "-20", "speed=90")
    assert (found["state"], found["result"]["value"]["angle"]) == ("succeeded", -20.0)
    assert site.json("do", "pan.read")["result"]["value"]["angle"] == -20.0


def test_do_a_command_of_ones_own_shows_what_it_printed(site: Person) -> None:
    done = site.run("do", "say.word", "panda")
    assert "the word is panda" in done.stdout


def test_do_shows_output_as_it_comes_all_of_it_and_once(site: Person) -> None:
    said = [line.strip() for line in site.ok("do", "say.slowly").splitlines()]
    assert said.count("| one") == said.count("| two") == 1
    assert said.index("| one") < said.index("| two") < next(n for n, line in enumerate(said) if "finished" in line)


@pytest.mark.parametrize(
    ("words", "code", "exit_with"),
    [
        (["do", "pan.move", "abc"], "invalid_args", 2),
        (["do", "pan.move", "300"], "limit", 2),
        (["do", "pan.move"], "invalid_args", 2),
        (["do", "pan.fly"], "unknown_capability", 2),
        (["do", "attic/pan.move", "3"], "unknown_node", 2),
        (["submit", "servo.mov"], "unknown_capability", 2),
        (["submit", "servo.move", "angle=3", "--device", "tilt"], "unknown_device", 2),
        (["submit", "servo.move", "angle=3", "--id", "short"], "invalid_task_id", 2),
        (["submit", "servo.move", "angle=3", "--priority", "1000"], "limit", 2),
        (["submit", "servo.move", "angle=3", "--label", "x"], "invalid_args", 2),
        (["show", "no-such-task"], "unknown_task", 2),
        (["cancel", "no-such-task"], "unknown_task", 2),
        (["card", "show", "attic"], "unknown_node", 2),
        (["nodes", "remove", "attic"], "unknown_peer", 2),
        (["nodes", "add", "Attic", "ed25519:x"], "invalid_name", 2),
        (["nodes", "add", "attic", "ed25519:x"], "invalid_key", 2),
        (["tasks", "--state", "odd"], "malformed", 2),
        (["node"], "storage_locked", 1),
        (["coordinator"], "storage_locked", 1),
        (["broker", "run"], "port_in_use", 1),
        (["up"], "already_running", 1),
    ],
)
def test_what_cannot_be_is_told_with_its_code(words: list[str], code: str, exit_with: int, site: Person) -> None:
    done = site.run(*words, "--json")
    assert done.returncode == exit_with, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["error"]["code"] == code
    plain = site.run(*words)
    assert plain.returncode == exit_with
    last = plain.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    assert last.endswith(f"[{code}]")
    assert "Traceback" not in plain.stderr


def test_submit_review_show_and_the_lists(site: Person) -> None:
    words = ["submit", "servo.move", "angle=10", "--goal", "look ahead", "--constraint", "slowly"]
    task = site.ok(*words, "--criterion", "it looks nice", "--deadline", "1h").strip()
    followed = site.run("watch", task)
    assert followed.returncode == 4
    assert f"edgepanda review {task} accept" in followed.stderr
    shown = site.run("show", task)
    for text in ("look ahead", "slowly", "open: it looks nice", "deadline=3600", "unanswered: it looks nice"):
        assert text in shown.stdout
    assert [row["id"] for row in site.json("digest")["needs_person"]] == [task]
    assert site.json("review", task, "accept", "--because", "it does")["state"] == "succeeded"
    assert site.run("watch", task).returncode == 0
    found = site.json("show", task)
    assert [event["kind"] for event in found["events"]][-2:] == ["finished", "review_accepted"]
    assert (
        site.json("tasks", "--state", "succeeded", "--capability", "servo.move", "--limit", "1")["tasks"][0]["id"]
        == task
    )
    drawn = site.ok("show", task, "--timeline")
    assert "attempt 1 desk" in drawn
    assert re.search("\nsucceeded after [0-9.]+", drawn)
    refused = site.run("cancel", task)
    assert refused.returncode == 1
    assert "it is succeeded" in refused.stderr


def test_the_same_id_is_the_same_task(site: Person) -> None:
    words = ["submit", "servo.move", "angle=5", "--id", "every-evening-1"]
    assert not site.json(*words)["duplicate"]
    assert site.json(*words)["duplicate"]
    other = site.run("submit", "servo.move", "angle=6", "--id", "every-evening-1", "--json")
    assert (other.returncode, json.loads(other.stdout)["error"]["code"]) == (1, "idempotency_conflict")


def test_lists_are_paged(site: Person) -> None:
    site.ok("do", "pan.read")
    site.ok("do", "pan.read")
    first = site.json("tasks", "--limit", "1")
    second = site.json("tasks", "--limit", "1", "--before", str(first["next"]))
    assert first["tasks"][0]["id"] > second["tasks"][0]["id"]
    log = site.ok("audit", "log", "--limit", "3", "--json").splitlines()
    assert [json.loads(line)["seq"] for line in log] == [1, 2, 3]
    assert json.loads(site.ok("audit", "log", "--after", "3", "--limit", "1", "--json"))["seq"] == 4


def test_tasks_are_narrowed_by_what_they_are_and_when(site: Person) -> None:
    task = site.json("submit", "servo.move", "angle=3", "--goal", "Look at the door", "--wait")["id"]

    def found(*words: str) -> list[str]:
        return [row["id"] for row in site.json("tasks", *words)["tasks"]]

    assert found("--goal", "the DOOR", "--since", "1h", "--all") == [task]
    assert found("--goal", "the door", "--until", "1h") == []
    assert found("--goal", "door", "--state", "failed,expired") == []
    assert task in found("--by", site.json("show", task)["by"])
    assert found("--goal", "door", "--needs-person") == []
    assert site.run("tasks", "--needs-person", "--state", "failed").returncode == 2
    assert site.run("tasks", "--since", "yesterday").returncode == 2


def test_the_card_tells_units_limits_and_rules(site: Person) -> None:
    told = site.ok("card")
    assert " x " in told  # the machine: its processor
    assert site.ok("card", "--all").splitlines()[0] == told.splitlines()[0]
    assert "pan.move" in told
    assert "number (degree) -90..90 required" in told
    assert "tier 1, replay safe" in told
    assert "ready, simulated" in told
    assert site.json("card", "show", "desk")["card"]["devices"]["pan"]["simulated"] is True
    assert [node["name"] for node in site.json("nodes")["nodes"]] == ["desk"]


def test_the_ledger_is_proved_with_a_witness_and_without(site: Person) -> None:
    site.ok("do", "pan.read")
    assert "desk" in site.json("audit", "verify")["witnesses"]
    assert "no witness" in site.json("audit", "verify", "--offline")["note"]


def test_ctrl_c_detaches_and_says_how_to_come_back(site: Person) -> None:
    site.ok("do", "pan.move", "0")
    running = site.start("do", "pan.move", "80", "speed=20")
    running.wait_for("running")
    assert running.end(signal.SIGINT) == 130
    line = running.wait_for("^detached; the task goes on")
    task = line.split("edgepanda watch ")[1].split(".")[0]
    assert "succeeded" not in running.text
    assert site.json("cancel", task)["id"] == task
    ended = site.run("watch", task, "--json")
    assert ended.returncode == 1
    last = json.loads(ended.stdout.splitlines()[-1])
    assert last["task"]["state"] == "cancelled"


def test_on_a_terminal_the_present_state_is_live(site: Person) -> None:
    site.ok("do", "pan.move", "0")
    code, told = site.at_terminal("do", "pan.move", "50", "speed=60")
    assert code == 0
    assert "finished: succeeded" in told
    assert "degrees" in told
    assert "\x1b[" in told
    assert "pulse_us=1777.778" in told


def test_do_gives_up_waiting_after_its_timeout_and_the_task_goes_on(site: Person) -> None:
    site.ok("do", "pan.move", "0")
    done = site.run("do", "pan.move", "60", "speed=30", "--timeout", "500ms")
    assert done.returncode == 3
    assert "edgepanda watch " in done.stderr


def test_watch_shows_what_was_and_what_comes(site: Person) -> None:
    site.ok("do", "pan.move", "0")
    task = site.ok("submit", "servo.move", "angle=60", "speed=40").strip()
    lines = [json.loads(line) for line in site.ok("watch", task, "--json").splitlines()]
    kinds = [line["kind"] for line in lines[:-1] if line["seq"]]
    assert kinds == ["submitted", "leased", "started", "finished"]
    assert lines[-1]["task"]["state"] == "succeeded"
    again = site.ok("watch", task)
    assert "leased to desk" in again
    assert "finished: succeeded" in again


def test_watch_the_site(site: Person) -> None:
    running = site.start("watch", "--json")
    plain = site.start("watch")
    plain.wait_for("^watching 1 nodes")
    running.wait_for('"watching"')
    site.ok("do", "pan.read")
    running.wait_for('"kind": "finished"')
    plain.wait_for("finished: succeeded")
    assert running.end(signal.SIGINT) == 130
    assert plain.end(signal.SIGINT) == 130


def test_watch_on_a_terminal_keeps_the_open_tasks_in_sight(site: Person) -> None:
    site.ok("do", "pan.move", "0")
    task = site.ok("submit", "servo.move", "angle=60", "speed=20").strip()
    code, told = site.at_terminal("watch", "--timeout", "4s")
    assert code == 0
    assert "watching 1 nodes" in told
    assert re.search(rf"OPEN.*STATE.*WHAT.*NODE.*SINCE.*\n.*{task}.*(leased|running).*servo.move", told)
    assert "finished: succeeded" in told


def test_node_and_label_say_where(site: Person) -> None:
    assert site.json("do", "pan.read", "--node", "desk")["node"] == "desk"
    assert site.json("do", "pan.move", "-7", "--node", "desk")["result"]["value"]["angle"] == -7
    assert site.run("do", "attic/pan.read", "--node", "desk").returncode == 2
    assert site.run("do", "pan.read", "--label", "room=lab").returncode == 2
    assert site.json("nodes", "--node", "desk")["nodes"][0]["name"] == "desk"


def test_a_node_does_its_own_devices_alone_when_the_coordinator_is_away(site: Person) -> None:
    pid = _pid(site, "coordinator")
    os.kill(pid, signal.SIGSTOP)
    try:
        done = site.run("do", "pan.move", "12")
        unsafe = site.run("do", "rec.mark", "--json")
        other = site.run("do", "attic/pan.move", "12")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert done.returncode == 0, done.stderr
    assert "this machine's node desk does it alone" in done.stderr
    assert "angle=12" in done.stdout
    assert (unsafe.returncode, json.loads(unsafe.stdout)["door"]) == (0, "local")
    assert other.returncode == 3
    task = json.loads(unsafe.stdout)["id"]
    watched = site.run("watch", task)
    assert watched.returncode in (0, 2), watched.stderr  # 2: the ledger has not heard of it yet


def test_status_is_one_screen_and_speaks_for_this_node_when_the_coordinator_is_away(site: Person) -> None:
    told = site.run("status")
    assert (told.returncode, told.stderr.splitlines()[-1][:10]) == (0, "edgepanda ")
    for text in ("coordinator  online, epoch ", "desk  online", "2 ready", "servo.{detach,move,read}"):
        assert text in told.stdout
    found = site.json("status")
    assert (found["from"], found["nodes"][0]["devices"]) == ("coordinator", {"pan": "ready", "rec": "ready"})
    pid = _pid(site, "coordinator")
    os.kill(pid, signal.SIGSTOP)
    try:
        alone, document = site.run("status", "--timeout", "1s"), site.run("status", "--timeout", "1s", "--json")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert (alone.returncode, document.returncode) == (3, 3)
    assert "broker       connected" in alone.stdout
    assert "pan  ready, simulated" in alone.stdout
    assert "This is this machine's node alone" in alone.stderr
    assert (json.loads(document.stdout)["from"], json.loads(document.stdout)["error"]["code"]) == ("node", "no_answer")


def test_tab_knows_what_other_commands_have_seen(site: Person) -> None:
    task = site.json("do", "pan.read")["id"]
    site.ok("tasks")
    assert site.ok("completion", "words", "--", "do", "pan.m").split() == ["pan.move"]
    assert site.ok("completion", "words", "--", "do", "pan.move", "a").split() == ["angle="]
    assert task in site.ok("completion", "words", "--", "show", "").split()
    assert site.ok("completion", "words", "--", "tasks", "--node", "").split() == ["desk"]


def test_nodes_are_filtered(site: Person) -> None:
    assert "pan" not in site.ok("nodes", "--away")
    assert site.json("nodes", "--online")["nodes"][0]["capabilities"][-1] == "servo.read"
    assert site.json("nodes", "--label", "room=lab") == {"nodes": []}
    assert site.run("nodes", "--label", "lab").returncode == 2


def _pid(site: Person, name: str) -> int:
    (line,) = [line for line in site.processes() if f"-m edgepanda {name} " in line]
    return int(line.split()[0])


# the processes


@pytest.fixture
def ready(person: Person) -> Person:
    """A site that is ready to go up."""
    person.ok("init", "--name", "desk")
    person.listen_anywhere()
    return person


@pytest.mark.parametrize("name", ["broker run", "coordinator", "node"])
def test_each_process_talks_to_systemd(name: str, ready: Person) -> None:
    """Ready, the watchdog's food from its own loop, and the end."""
    words = name.split()
    address = f"\0edgepanda-test-{os.getpid()}-{words[0]}"
    others = [ready.start("broker", "run")] if name == "coordinator" else []
    for other in others:
        other.wait_for("^broker at")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        systemd.settimeout(20)
        running = ready.start(*words, more={"NOTIFY_SOCKET": "@" + address[1:], "WATCHDOG_USEC": "200000"})
        heard: list[str] = []
        while not {"READY=1", "WATCHDOG=1"} <= set(heard):
            heard += systemd.recv(4096).decode().splitlines()
        assert running.end() == 0
        while "STOPPING=1" not in heard:
            heard += systemd.recv(4096).decode().splitlines()
    assert [other.end() for other in others] == [0] * len(others)


def test_a_machine_without_the_sites_key_is_told_so(ready: Person) -> None:
    (ready.folder / ".edgepanda/keys/site.key").unlink()
    done = ready.run("coordinator", "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (2, "site_key_missing")


def test_the_commented_capability_of_the_configuration_works(ready: Person) -> None:
    config = ready.folder / "edgepanda.toml"
    before, commented, after = config.read_text().partition('# [capabilities."disk.free"]')
    config.write_text(before + (commented + after).replace("# ", ""))
    with ready.up():
        done = ready.json("do", "disk.free")
    assert done["state"] == "succeeded"
    assert any("%" in line for line in done["result"]["output"])


def test_up_ends_everything_in_order_and_leaves_nothing(ready: Person) -> None:
    running = ready.start("up", "--json")
    running.wait_for('"event": "ready", "pid"')
    assert len(ready.processes()) >= 4
    assert running.end(signal.SIGINT) == 0
    ended = [json.loads(line)["process"] for line in running.lines if '"event": "ended"' in line]
    assert ended == ["node", "coordinator", "broker"]
    assert ready.processes() == []


def test_up_that_is_killed_leaves_nothing(ready: Person) -> None:
    with ready.up() as running:
        children = [int(line.split()[0]) for line in ready.processes() if "-m edgepanda" in line]
        watches = [os.pidfd_open(child) for child in children if child != running.process.pid]
        assert running.end(signal.SIGKILL) == -signal.SIGKILL
        for watch in watches:
            _wait_gone(watch)
    assert [line for line in ready.processes() if "-m edgepanda " in line] == []


def _wait_gone(watch: int) -> None:
    import select

    poll = select.poll()
    poll.register(watch, select.POLLIN)
    assert poll.poll(20_000), "a process goes on"
    os.close(watch)


@pytest.mark.parametrize("victim", ["broker", "coordinator", "node"])
def test_up_starts_again_what_died(victim: str, ready: Person) -> None:
    with ready.up() as running:
        ready.ok("do", "pan.move", "10")
        seen = len(running.lines)
        os.kill(_pid(ready, victim), signal.SIGKILL)
        running.wait_for(f"{victim} .*restarting: it ended with signal SIGKILL", after=seen)
        running.wait_for("node desk is here|connected to" if victim != "coordinator" else "epoch 2", after=seen)
        assert _eventually_does(ready, running)


def _eventually_does(person: Person, running: Running) -> bool:
    """A command waits for the broker, or is done by the node alone: at the latest the third try works."""
    return any(person.run("do", "pan.move", "20").returncode == 0 for _ in range(3))


# a second machine


def test_a_second_machine_joins_and_is_let_in_no_longer(ready: Person, tmp_path: Path) -> None:
    shed = Person(tmp_path / "shed")  # its node is ended below, come what may
    first = ready.json("init")
    url = next(
        line.split('"')[1]
        for line in (ready.folder / "edgepanda.toml").read_text().splitlines()
        if line.startswith("listen")
    )
    joined = shed.json(
        "init", "--node-only", "--name", "shed", "--site-key", first["site_key"], "--broker", f"mqtt://{url}"
    )
    assert joined["next"][0] == f"edgepanda nodes add shed {joined['node_key']}"
    with ready.up() as site:
        assert "once it runs" in ready.ok(*joined["next"][0].split()[1:])
        node = shed.start("node")
        try:
            site.wait_for("node shed is here")
            assert ready.json("do", "shed/pan.move", "15")["node"] == "shed"
            ambiguous = ready.run("do", "pan.move", "15", "--json")
            assert json.loads(ambiguous.stdout)["error"]["details"]["candidates"] == ["desk/pan", "shed/pan"]
            assert "no longer" in ready.ok("nodes", "remove", "shed")
            assert [each["name"] for each in ready.json("nodes")["nodes"]] == ["desk"]
        finally:
            assert node.end() == 0


def test_a_node_that_is_not_let_in_is_told_and_works_alone(ready: Person, tmp_path: Path) -> None:
    """It has no operator's key either: its own devices are done directly, and what asks the site says whom to ask."""
    shed = Person(tmp_path / "shed")
    words = ["--name", "shed", "--site-key", ready.json("init")["site_key"]]
    config = ready.folder / "edgepanda.toml"
    url = next(line.split('"')[1] for line in config.read_text().splitlines() if line.startswith("listen"))
    joined = shed.json("init", "--node-only", *words, "--broker", f"mqtt://{url}")
    file = shed.folder / "edgepanda.toml"
    file.write_text(file.read_text().replace("# beat = 10.0", "beat = 0.2"))
    with ready.up() as site:
        node = shed.start("up")
        try:
            line = node.wait_for(r"\[not_let_in\]")
            assert joined["next"][0] in line
            assert joined["next"][0] in node.wait_for("^ready: node, but ")
            done = shed.run("do", "pan.move", "9")
            assert (done.returncode, "you have no key for this site" in done.stderr) == (0, True), done.stderr
            asked = shed.run("tasks")
            assert (asked.returncode, asked.stderr.splitlines()[-1][-22:]) == (2, "[operator_key_missing]")
            assert "ask where the site's operator works" in asked.stderr
            ready.ok(*joined["next"][0].split()[1:])
            site.wait_for("node shed is here")
            assert ready.json("do", "shed/pan.read")["result"]["value"]["angle"] == 9
        finally:
            assert node.end() == 0


@pytest.mark.parametrize(("kind", "said"), [("another", "has the ledger"), ("older", "this node has seen")])
def test_another_ledger_or_an_older_copy_needs_an_operators_word(kind: str, said: str, ready: Person) -> None:
    state = ready.folder / ".edgepanda"
    with ready.up():
        ready.ok("do", "pan.move", "10")
    older = {file: file.read_bytes() for file in state.glob("ledger.db*")}
    with ready.up():
        ready.ok("do", "pan.move", "20")
        ready.ok("do", "pan.move", "30")
    for file in state.glob("ledger.db*"):
        file.unlink()
    if kind == "older":
        for file, content in older.items():
            file.write_bytes(content)
    running = ready.start("up")
    try:
        line = running.wait_for(f"ready: .*, but its node does not obey this coordinator: .*{said}")
        word = re.findall(r"`edgepanda (node --accept-ledger [0-9a-f]+)`", line)[0]
    finally:
        running.end()
    broker = ready.start("broker", "run")
    broker.wait_for("^broker at")
    coordinator, node = ready.start("coordinator"), ready.start(*word.split())
    try:
        node.wait_for("this node obeys the ledger")
        coordinator.wait_for("node desk is here")
        assert ready.json("do", "pan.move", "11")["state"] == "succeeded"
        assert ready.json("audit", "verify")["ok"]
    finally:
        codes = [each.end() for each in (node, coordinator, broker)]
    assert codes == [0, 0, 0]


def test_a_dead_broker_is_told(ready: Person) -> None:
    done = ready.run("tasks", "--json")
    assert done.returncode == 3
    assert json.loads(done.stdout)["error"]["code"] == "broker_unreachable"


def test_without_a_broker_the_node_speaks_for_itself(ready: Person) -> None:
    assert json.loads(ready.run("status", "--json").stdout)["error"]["code"] == "broker_unreachable"
    node = ready.start("node")
    node.wait_for("no connection to the broker")
    done = ready.run("status")
    assert done.returncode == 3
    assert re.search("^broker       not connected: .+$", done.stdout, re.MULTILINE)
    assert "coordinator  not heard of since this node started" in done.stdout
    assert "[broker_unreachable]" in done.stderr
    assert node.end() == 0
