"""`completion`: what a shell needs so that Tab knows the site."""

from __future__ import annotations

import click

from edgepanda.cli.common import Settings, command
from edgepanda.cli.out import emit, say

SCRIPTS = {
    "bash": """
_edgepanda() {
    mapfile -t COMPREPLY < <("${COMP_WORDS[0]}" completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    [[ ${#COMPREPLY[@]} -eq 1 && -z ${COMPREPLY[0]} ]] && COMPREPLY=()
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=./] ]] && compopt -o nospace
    return 0
}
complete -o bashdefault -o default -F _edgepanda edgepanda
""",
    "zsh": """#compdef edgepanda
_edgepanda() {
    local -a found open
    found=("${(@f)$(${words[1]} completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    found=(${found:#})
    (( $#found )) || { _files; return }
    open=(${(M)found:#*[=./]})
    found=(${found:#*[=./]})
    compadd -a found
    compadd -S '' -a open
}
compdef _edgepanda edgepanda
""",
    "fish": """
function __edgepanda_words
    set -l words (commandline -opc)
    set -e words[1]
    edgepanda completion words -- $words (commandline -ct) 2>/dev/null
end
complete -c edgepanda -f -a '(__edgepanda_words)'
complete -c edgepanda -l config -r -F
""",
}


@command(
    "completion",
    timeout_help="",
    examples="""
    eval "$(edgepanda completion bash)"
    edgepanda completion zsh > ~/.zfunc/_edgepanda
    edgepanda completion fish > ~/.config/fish/completions/edgepanda.fish
    """,
)
@click.argument("shell", type=click.Choice(sorted(SCRIPTS)))
def completion_command(settings: Settings, shell: str) -> None:
    """Print the script that makes a shell complete commands, options and the site's own names.

    Devices, actions, arguments, capabilities, nodes and tasks come from what other commands have seen last, kept in the
    user's cache folder, and from the local configuration; nothing is asked while you type.
    """
    script = SCRIPTS[shell].strip("\n")
    if settings.json:
        emit({"shell": shell, "script": script})
    else:
        say(script)
