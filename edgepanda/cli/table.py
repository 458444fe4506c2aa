"""Every command: the module that has it, and its line in `edgepanda --help`. Imports nothing."""

from __future__ import annotations

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Begin": {
        "demo": ("demo", "Show the main job on this machine in a few seconds, and leave nothing behind"),
        "init": ("init", "Make a configuration and keys, or prepare a second machine"),
        "config": ("config", "Check, show or edit the configuration, or list its keys"),
        "device": ("device", "List, add, test, change or remove a device"),
        "capability": ("capability", "Make a command of your own a capability, or see what blocks it"),
        "doctor": ("doctor", "Look this machine over: what is wrong, where, and what to do"),
        "up": ("up", "Start broker, coordinator and node together, as the configuration says"),
    },
    "Work": {
        "do": ("do", "Do one thing now and show what came of it: `edgepanda do pan.move 30`"),
        "submit": ("submit", "Submit a task with a goal, constraints and criteria; prints its id"),
        "tasks": ("tasks", "List tasks, newest first"),
        "show": ("show", "All about one task: state, reason, evidence, output, what happened"),
        "watch": ("watch", "Follow one task, or everything at the site, as it happens"),
        "stop": ("stop", "Emergency stop: everything goes to its safe state, and stays there"),
        "release": ("stop", "End emergency stops, as an operator"),
        "cancel": ("decide", "Ask for a task to end"),
        "resolve": ("decide", "Say what became of a task whose outcome is uncertain"),
        "review": ("decide", "Accept a task's result, or have it done again, or reject it"),
    },
    "Site": {
        "status": ("status", "One screen for the site: nodes, what runs and waits, what needs a person"),
        "digest": ("digest", "The same in one short answer, for programs"),
        "nodes": ("nodes", "List the nodes; let one in, or out"),
        "rename": ("rename", "Give this machine's node another name"),
        "card": ("card", "What a node is and can do: hardware, devices, actions, limits"),
        "logs": ("logs", "What a node has logged of late, or what it logs now"),
        "audit": ("audit", "Prove the ledger, or read it"),
    },
    "Processes": {
        "node": ("daemons", "Run this machine's node alone, in the foreground"),
        "coordinator": ("daemons", "Run the site's coordinator alone, in the foreground"),
        "broker": ("broker", "Run the embedded broker alone, manage its users, or try any broker"),
        "completion": ("completion", "What your shell needs to complete commands and the site's names"),
        "man": ("man", "Write the manual pages into a folder"),
        "explain": ("explain", "What an error's code means, and what to do"),
        "version": ("version", "Versions of EdgePanda, Python and the protocol"),
    },
}

COMMANDS: dict[str, tuple[str, str]] = {name: entry for section in SECTIONS.values() for name, entry in section.items()}

DEVICE_DRIVERS = ("servo",)
"""The built-in drivers of devices, for completion; a test holds it against `config_types.DRIVERS`."""

EXITS: dict[int, str] = {
    0: "done",
    1: "the task failed, timed out, was cancelled or expired; or the site refused, or something here failed",
    2: "wrong usage: a command, option, argument or configuration that cannot be used",
    3: "broker, coordinator or node cannot be reached, or there was no answer in time",
    4: "a person is needed: the task waits for one, or its outcome is uncertain",
    130: "interrupted with Ctrl-C",
}


def overview() -> str:
    """What `edgepanda --help` prints."""
    lines = [
        "Usage: edgepanda COMMAND [ARGUMENT...]",
        "",
        "Durable work for small machines: nodes say what they can do, a coordinator keeps a",
        "ledger of all work, and every task ends with evidence.",
    ]
    for title, commands in SECTIONS.items():
        lines += ["", f"{title}:", *(f"  {name:<12} {text}" for name, (_, text) in commands.items())]
    lines += [
        "",
        "`edgepanda COMMAND --help` shows a command's options and examples. All take --config FILE,",
        "--json and -v; those that ask the site take --timeout too.",
        "",
        "Exit codes:",
        *(f"  {code:>3}  {text}" for code, text in EXITS.items()),
        "",
        "Start here: edgepanda demo",
    ]
    return "\n".join(lines)
