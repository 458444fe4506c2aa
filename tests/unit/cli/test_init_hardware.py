"""`init` and the hardware: a servo's pin by question and by option, on boards by their documents."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from edgepanda.cli import init_hardware, main
from edgepanda.cli.init_file import render
from edgepanda.errors import EdgePandaError
from edgepanda.model.config import load_config, load_text
from edgepanda.model.hardware import Hardware
from tests.rig.boards import documented


def asked(hardware: Hardware, typed: str) -> str:
    """What a person sees who types this; the answer stands at the end."""

    @click.command()
    def ask() -> None:
        click.echo(f"answer: {init_hardware.ask_servo(hardware)}")

    done = CliRunner().invoke(ask, [], input=typed)
    assert done.exit_code == 0, done.output
    return str(done.output)


def test_the_hardware_is_shown_and_a_pin_is_asked_until_it_is_one() -> None:
    told = asked(documented("pi4b"), "left\n28\ngpiochip7:3\ngpiochip0:58\n18\n")
    assert "Raspberry Pi 4 Model B Rev 1.4" in told
    assert "-> end minicom: sudo kill 1432" in told
    assert "'left' is no GPIO pin" in told
    assert "'28' is not on the header" in told
    assert (
        "'gpiochip7:3' is no line here; write it as in 18; there are gpiochip0 (58 lines), gpiochip1 (8 lines)" in told
    )
    assert told.count("Pin of a servo, as in 18 [none]") == 5
    assert told.endswith("answer: 18\n")


def test_enter_is_none() -> None:
    assert asked(documented("pi5"), "\n").endswith("answer: none\n")


def test_another_board_names_chip_and_line() -> None:
    told = asked(documented("pc"), "18\ngpiochip3:7\n")
    assert "'18' is not here: no Raspberry Pi; write it as in gpiochip3:7" in told
    assert told.endswith('answer: {chip = "gpiochip3", line = 7}\n')


@pytest.mark.parametrize("board", ["zero2w", "rock4cplus"])
def test_a_board_whose_chips_cannot_be_used_is_told_why_and_not_asked(board: str) -> None:
    told = asked(documented(board), "")
    assert "-> sudo " in told
    assert "No GPIO chip can be used here" in told
    assert told.endswith("answer: none\n")


def init(folder: Path, monkeypatch: pytest.MonkeyPatch, board: str, *words: str) -> int:
    monkeypatch.setattr(init_hardware, "scanned", lambda: documented(board))
    for name in [name for name in os.environ if name.startswith(("EDGEPANDA_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder / "home"))
    return main(["init", "--yes", "--config", str(folder / "edgepanda.toml"), *words])


def test_the_option_writes_a_commented_servo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert init(tmp_path, monkeypatch, "pi4b", "--servo", "GPIO12") == 0
    pan = load_config(tmp_path / "edgepanda.toml").config.devices["pan"]
    assert pan == {"driver": "servo", "pin": 12, "start": 0.0, "safe": "detach"}
    assert "# simulate = true" in (tmp_path / "edgepanda.toml").read_text()


def test_the_option_says_what_is_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(tmp_path, monkeypatch, "zero2w", "--servo", "18") == 0
    assert "cannot be used yet: only the group gpio may use /dev/gpiochip0; sudo usermod" in capsys.readouterr().err


def test_a_pin_that_is_not_here_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(tmp_path, monkeypatch, "pc", "--servo", "18") == 2
    assert "[config_value]" in capsys.readouterr().err
    assert not (tmp_path / "edgepanda.toml").exists()


def test_none_is_simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert init(tmp_path, monkeypatch, "pi4b", "--servo", "none") == 0
    assert load_config(tmp_path / "edgepanda.toml").config.devices["pan"]["simulate"] is True


def test_no_chip_at_all_is_said_so() -> None:
    with pytest.raises(EdgePandaError, match="not here") as caught:
        init_hardware.servo_pin("18", Hardware())
    assert caught.value.cure == "no GPIO chip here"


def test_a_servo_that_is_written_is_a_configuration() -> None:
    pin = '{chip = "gpiochip1", line = 7}'
    text = render(site="home", site_key="", broker="", node="desk", servo=pin)
    found = load_text(text, Path("edgepanda.toml")).config.devices["pan"]["pin"]
    assert found == {"chip": "gpiochip1", "line": 7}
