"""--timeout, --node and --label mean the same and look the same for every command that has them."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from edgepanda.cli import common
from edgepanda.cli.app import LazyGroup, run
from edgepanda.cli.common import Settings, command, node_argument


def everything(group: click.Group, path: str = "edgepanda") -> Iterator[tuple[str, click.Command]]:
    """All commands, those of groups too."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from everything(found, f"{path} {name}")
        else:
            yield f"{path} {name}", found


COMMANDS = dict(everything(LazyGroup("edgepanda")))


def options(name: str) -> dict[str, click.Option]:
    """The commands that have the option."""
    return {
        path: option
        for path, found in COMMANDS.items()
        for option in found.params
        if isinstance(option, click.Option) and name in option.opts
    }


def test_a_timeout_is_a_time_with_a_unit() -> None:
    found = options("--timeout")
    assert len(found) > 10
    for path, option in found.items():
        convert = getattr(option.type, "func", None)
        assert convert in (common.time_out, common.duration), path
        assert option.metavar == "TIME", path
        assert option.help, path


def test_a_node_is_named_the_same_way() -> None:
    found = options("--node")
    assert {"edgepanda do", "edgepanda logs", "edgepanda card show", "edgepanda tasks"} <= set(found)
    assert {option.metavar for option in found.values()} == {"NODE"}
    for path, each in COMMANDS.items():  # where it is an argument, it is the option too
        if any(isinstance(each_param, click.Argument) and each_param.name == "node" for each_param in each.params):
            assert path in found


def test_a_label_is_a_pair_and_may_be_repeated() -> None:
    found = options("--label")
    assert {"edgepanda do", "edgepanda submit", "edgepanda nodes list", "edgepanda card show"} <= set(found)
    for path, option in found.items():
        assert (option.metavar, option.multiple, option.name) == ("NAME=VALUE", True, "labels"), path


@pytest.mark.parametrize("text", ["0", "0s", "0ms"])
def test_no_time_at_all_is_no_timeout(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--timeout", text]) == 2
    assert "longer than 0" in capsys.readouterr().err


@command("probe", examples="probe")
@node_argument
def _probe(_settings: Settings, node: str | None) -> None:
    click.echo(f"node={node}")


@pytest.mark.parametrize(
    ("words", "said"),
    [([], "node=None"), (["a"], "node=a"), (["--node", "a"], "node=a"), (["a", "--node", "a"], "node=a")],
)
def test_a_node_is_an_argument_or_an_option(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    _probe.main(words, standalone_mode=False)
    assert capsys.readouterr().out.strip() == said


def test_two_nodes_are_one_too_many() -> None:
    with pytest.raises(click.UsageError, match="name two nodes"):
        _probe.main(["a", "--node", "b"], standalone_mode=False)
