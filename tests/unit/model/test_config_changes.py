"""What a running process makes of an edited configuration."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from edgepanda.model.config import Loaded, load_text
from edgepanda.model.config_changes import changes, taken_up

TABLES = ("site", "broker", "node", "devices", "capabilities")
PATH = Path("/etc/edgepanda/edgepanda.toml")


def loaded(text: str) -> Loaded:
    return load_text(text, PATH)


BEFORE = loaded('[node]\nname = "desk"\nslots = 4\n[devices.pan]\ndriver = "servo"\npin = 18\n')


def test_each_key_is_taken_up_or_waits_for_a_restart() -> None:
    after = loaded(
        'state_dir = "x"\n[site]\nname = "lab"\n[coordinator]\nlease_ttl = 9\n[node]\nname = "shelf"\nslots = 5\n'
        '[devices.pan]\ndriver = "servo"\npin = 19\n[devices.tilt]\ndriver = "servo"\npin = 18\n'
    )
    found = changes(BEFORE, after, TABLES)
    assert found.taken == ("node.slots", "devices.pan", "devices.tilt")
    assert found.restart == ("state_dir", "site.name", "node.name")
    assert changes(BEFORE, after, ("coordinator",)).restart == ("state_dir", "coordinator")


def test_a_table_that_goes_waits_for_a_restart_and_its_devices_do_not() -> None:
    found = changes(BEFORE, loaded(""), TABLES)
    assert (found.taken, found.restart) == (("devices.pan",), ("node",))


def test_what_waits_for_a_restart_goes_on_waiting() -> None:
    after = loaded('[site]\nname = "lab"\n[node]\nname = "desk"\nslots = 5\n')
    in_effect = taken_up(BEFORE, after, TABLES)
    assert in_effect.config.site.name == "home"
    assert in_effect.require_node().slots == 5
    assert in_effect.config.devices == {}
    again = changes(in_effect, after, TABLES)
    assert (again.taken, again.restart) == ((), ("site.name",))


texts = st.builds(
    lambda name, slots, beat, ttl, pins: "".join(
        [
            f'[site]\nname = "{name}"\n',
            f"[coordinator]\nlease_ttl = {ttl}\n" if ttl else "",
            f'[node]\nname = "{name}"\nslots = {slots}\nbeat = {beat}\n' if slots else "",
            *(f'[devices.d{pin}]\ndriver = "servo"\npin = {pin}\n' for pin in pins),
        ]
    ),
    st.sampled_from(["home", "lab"]),
    st.integers(0, 3),
    st.integers(1, 3),
    st.integers(0, 2),
    st.sets(st.integers(2, 5), max_size=3),
)


@given(texts, texts)
def test_what_was_taken_up_is_never_taken_up_twice(one: str, other: str) -> None:
    before, after = loaded(one), loaded(other)
    found = changes(before, after, TABLES)
    again = changes(taken_up(before, after, TABLES), after, TABLES)
    assert again.taken == ()
    assert again.restart == found.restart
    assert not set(found.taken) & set(found.restart)
