#!/usr/bin/env bash
# Sets up what one of EdgePanda's commands needs on this machine, then runs it; --help tells the rest.
# Everything it says goes to standard error: standard output is the command's own.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
environment=$here/.venv
python=''        # the interpreter to make the environment with
python_wanted='' # --python
goal=''          # demo, up, init or test
needs=''         # the goal whose packages it needs

readonly EXIT_USAGE=2 EXIT_UNAVAILABLE=69 EXIT_INTERRUPTED=130
readonly OLDEST_PYTHON='3.11'

usage() {
    cat <<EOF
Usage: ./install.sh [--env DIR] [--python PROGRAM] demo|up|init|test [ARGUMENT...]

  demo    a broker, a coordinator and a node with a servo on simulated pins on this
          machine; sends the servo one task, shows what happens and the proof of it,
          and leaves nothing running. Arguments go to 'edgepanda demo'.
  up      starts what edgepanda.toml in this folder enables, and stays; where there is none,
          'edgepanda init --yes' makes one first, with a servo on simulated pins.
          Arguments go to 'edgepanda up'.
  init    'edgepanda init' with the arguments: for a node of another machine's site.
  test    the tests. Without arguments: lint, types, unit, e2e, faults.
          './install.sh test --help' lists the parts and how to run a single test.

All first say what they install, and install only what is missing:
  Debian packages   through apt-get, as root or with sudo. python3-venv; test: also
                    mosquitto, faketime, iproute2, shellcheck, zsh and fish. Mosquitto's own service is
                    neither started nor enabled: the tests start brokers of their own on free ports.
  an environment    for Python packages, in .venv beside this file; nothing else on the
                    machine changes. Remove the folder to be rid of it.
When nothing is missing they need neither root nor a network. They can be run again at any
time; an environment that was left half-made, or made by another Python, is made anew.

  --env DIR         keep the environment in DIR instead
  --python PROGRAM  make it with this Python ($OLDEST_PYTHON or newer)
  -h, --help        this text

Exit codes: that of the command that was run; before it, $EXIT_USAGE wrong usage, $EXIT_UNAVAILABLE something is
missing and could not be installed, $EXIT_INTERRUPTED interrupted.

Examples:
  ./install.sh demo
  ./install.sh test unit
  ./install.sh --env /tmp/panda test -- tests/unit -k digest
EOF
}

say() { printf '%s\n' "$*" >&2; }

fail() { # exit code, message: says it and ends
    local code=$1
    shift
    say "install.sh: $*"
    exit "$code"
}

main() {
    trap 'say "install.sh: interrupted; run the same command again to go on"; exit $EXIT_INTERRUPTED' INT TERM
    parse "$@"
    shift "$consumed"
    cd "$here"
    case "$goal ${1-}" in 'test -h' | 'test --help') exec "$here/tests/run" --help ;; esac
    lock
    set_up "$@"
    unlock
    trap - INT TERM
    run "$@"
}

parse() { # sets the options, the goal, and in $consumed how many arguments they took
    local all=$#
    while [ $# -gt 0 ]; do
        case $1 in
            -h | --help) usage; exit 0 ;;
            --env) need_value "$@"; environment=$(absolute "$2"); shift 2 ;;
            --env=*) environment=$(absolute "${1#*=}"); shift ;;
            --python) need_value "$@"; python_wanted=$2; shift 2 ;;
            --python=*) python_wanted=${1#*=}; shift ;;
            demo | up | init | test) goal=$1; needs=${goal/init/up}; shift; break ;;
            *) fail $EXIT_USAGE "'$1' is not known here; './install.sh --help' lists the commands" ;;
        esac
    done
    [ -n "$goal" ] || { usage >&2; exit $EXIT_USAGE; }
    consumed=$((all - $#))
}

need_value() { [ $# -ge 2 ] || fail $EXIT_USAGE "$1 needs a value; see './install.sh --help'"; }

absolute() { case $1 in /*) printf '%s' "$1" ;; *) printf '%s/%s' "$PWD" "$1" ;; esac; }

# One set-up at a time in one clone. Where there is no flock, two at once are the caller's own affair.
lock() {
    command -v flock >/dev/null || return 0
    exec 9<"$here"
    flock --nonblock 9 && return 0
    say "Waiting for another ./install.sh in this folder to finish its set-up."
    flock 9
}

unlock() { exec 9<&-; }

run() {
    export PATH="$environment/bin:$PATH:/usr/sbin:/sbin" # Debian keeps mosquitto where a user's PATH does not look
    case $goal in
        demo | init) exec "$environment/bin/edgepanda" "$goal" "$@" ;;
        up)
            [ -e edgepanda.toml ] || "$environment/bin/edgepanda" init --yes
            exec "$environment/bin/edgepanda" up "$@"
            ;;
        test) exec "$here/tests/run" "$@" ;;
    esac
}

# ---- what is there, what is missing

set_up() { # the goal's arguments
    local missing state
    state=$(environment_state)
    [ "$state" != foreign ] ||
        fail $EXIT_USAGE "$environment exists and is not of this script's making: remove it, or choose another folder with --env DIR"
    case $state in new | stale) find_python ;; esac
    missing=$(missing_packages "$state" "$@")
    if [ -z "$missing" ] && [ "$state" = ready ]; then return 0; fi
    announce "$missing" "$state"
    [ -z "$missing" ] || install_packages "$missing"
    case $state in
        new | stale) make_environment; fill_environment ;;
        outdated) fill_environment ;;
    esac
}

find_python() { # sets $python to the first that is new enough, or to nothing where there is none at all
    local name
    python=''
    for name in ${python_wanted:-python3 python3.14 python3.13 python3.12 python3.11}; do
        new_enough "$name" || continue
        python=$(command -v "$name")
        return 0
    done
    [ -z "$python_wanted" ] || fail $EXIT_UNAVAILABLE "$python_wanted is not a Python $OLDEST_PYTHON or newer"
    command -v python3 >/dev/null || return 0
    fail $EXIT_UNAVAILABLE "Python $OLDEST_PYTHON or newer is needed, and $(command -v python3) is $(python3 --version 2>&1)." \
        "Debian 12 and 13 and Raspberry Pi OS 12 and 13 bring it; elsewhere name one with --python"
}

new_enough() { "$1" -c "import sys; sys.exit(sys.version_info < (${OLDEST_PYTHON/./, }))" 2>/dev/null; }

has_venv() { [ -n "$python" ] && "$python" -c 'import ensurepip, venv' 2>/dev/null; }

has_program() { PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null; }

missing_packages() { # state of the environment, the goal's arguments: the Debian packages still needed, in one line
    local missing=()
    case $1 in new | stale) has_venv || missing+=(python3-venv) ;; esac
    shift
    if [ "$goal" = test ]; then
        has_program mosquitto || missing+=(mosquitto)
        has_program shellcheck || missing+=(shellcheck)
        has_program faketime || missing+=(faketime)
        has_program zsh || missing+=(zsh)
        has_program fish || missing+=(fish)
        has_program ip || missing+=(iproute2)
        case " $* " in *' containers '*)
            has_program mmdebstrap || missing+=(mmdebstrap)
            has_program systemd-nspawn || missing+=(systemd-container)
            has_program git || missing+=(git)
            ;;
        esac
    fi
    printf '%s' "${missing[*]-}"
}

announce() { # the missing packages, the state of the environment
    say "EdgePanda sets up what '$goal' needs, then runs it."
    [ -z "$1" ] || say "  Debian packages:  $1 (and what they depend on)"
    case " $1 " in *' mosquitto '*) say "                    Mosquitto's service stays off: the tests start brokers of their own" ;; esac
    case $2 in
        new) say "  environment:      $environment" ;;
        stale) say "  environment:      $environment, made anew (it is half-made, of another Python, or its clone has moved)" ;;
        outdated) say "  environment:      $environment, brought up to date" ;;
    esac
    [ "$2" = ready ] || say "  Python packages:  $(python_packages) (and what they depend on); this clone itself as 'edgepanda'"
}

python_packages() { # the names in setup.cfg that pip installs for the goal, in one line
    case $needs in
        demo) requirements install_requires broker demo ;;
        up) requirements install_requires broker demo gpio ;;
        test) requirements install_requires broker demo gpio test ;;
    esac | sort -u | paste -sd ' ' -
}

requirements() { # the distributions that these keys of setup.cfg name, one a line
    local key
    for key in "$@"; do
        awk -v key="$key" '
            /^[^ \t]/ { inside = ($0 ~ "^" key "[ \t]*="); next }
            inside && NF && $1 !~ /^edgepanda/ { sub(/[^A-Za-z0-9._-].*/, "", $1); print $1 }
        ' setup.cfg
    done
}

# ---- Debian packages

install_packages() { # the names, in one line
    local prefix=()
    command -v apt-get >/dev/null ||
        fail $EXIT_UNAVAILABLE "this system ($(uname -s)) has no apt-get: install by hand what Debian calls $1, then run this again"
    if [ "$(id -u)" -ne 0 ]; then
        may_sudo || fail $EXIT_UNAVAILABLE "$1: missing, and installing it needs root or sudo." \
            "As root: apt-get install --no-install-recommends $1"
        prefix=(sudo)
        say "Installing the Debian packages with sudo."
    else
        say "Installing the Debian packages."
    fi
    # shellcheck disable=SC2086  # the names are words of their own
    ${prefix[@]+"${prefix[@]}"} bash -c "$(declare -f apt_install); apt_install \"\$@\"" bash $1 >&2 ||
        fail $EXIT_UNAVAILABLE "apt-get could not install $1 (its reason stands above)"
    case " $1 " in *' python3-venv '*) find_python ;; *) return 0 ;; esac
    has_venv || fail $EXIT_UNAVAILABLE "${python:-python3} still has no venv and ensurepip after installing $1; name another Python with --python"
}

may_sudo() { # without a password, or with somebody there to type it
    command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }
}

# Runs as root in a shell of its own. Mosquitto would start as a service at once and at every boot: while apt works, a
# policy-rc.d refuses that one service (one that exists is left alone), and afterwards the service is disabled.
apt_install() {
    set -eu
    export DEBIAN_FRONTEND=noninteractive
    local policy=/usr/sbin/policy-rc.d quiet=no
    case " $* " in *' mosquitto '*) quiet=yes ;; esac
    if [ $quiet = yes ] && [ ! -e $policy ]; then
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
        trap 'exit 130' INT TERM
        # shellcheck disable=SC2016  # its $1 is that script's own
        printf '#!/bin/sh\ncase $1 in mosquitto | mosquitto.service) exit 101 ;; esac\n' >$policy
        chmod 755 $policy
    fi
    apt-get update -qq || echo 'apt-get update failed; going on with the package lists that are here'
    apt-get install -qq -y --no-install-recommends -o Dpkg::Use-Pty=0 "$@" >/dev/null
    [ $quiet = yes ] || return 0
    update-rc.d mosquitto disable # for systemd too, also where none is installed yet
    [ ! -d /run/systemd/system ] || systemctl stop mosquitto.service
}

# ---- the environment
# Its file 'edgepanda-setup' says whose it is and what is in it: first a line with the clone's folder and the Python,
# or 'incomplete' while somebody works on it; then for each goal that it serves a line with the goal and setup.cfg's digest.

environment_state() { # new, foreign, stale, outdated or ready
    local setup=$environment/edgepanda-setup
    if [ ! -e "$environment" ] || { [ -d "$environment" ] && [ -z "$(ls -A "$environment")" ]; }; then
        echo new
    elif [ ! -e "$setup" ]; then
        echo foreign
    elif [ "$(head -n 1 "$setup")" != "$(identity)" ]; then
        echo stale
    elif [ -x "$environment/bin/edgepanda" ] && grep -qx "$needs $(digest)" "$setup"; then
        echo ready
    else
        echo outdated
    fi
}

identity() { # of the environment as it is now
    printf '%s, Python %s\n' "$here" "$("$environment/bin/python" -c 'import sys; print(*sys.version_info[:3])' 2>/dev/null)"
}

digest() { cksum <setup.cfg | tr ' ' -; }

make_environment() {
    rm -rf "$environment"
    mkdir -p "$environment" || fail $EXIT_UNAVAILABLE "cannot write $environment; choose another folder with --env DIR"
    echo incomplete >"$environment/edgepanda-setup"
    say "Making the environment."
    "$python" -m venv "$environment" >&2 || fail $EXIT_UNAVAILABLE "$python could not make the environment $environment"
}

extras() { # of setup.cfg
    case $needs in up) echo demo,gpio ;; *) echo "$needs" ;; esac
}

fill_environment() {
    local served
    echo incomplete >"$environment/edgepanda-setup"
    say "Installing the Python packages (a minute or so; several on a small machine)."
    "$environment/bin/python" -m pip install -qq --disable-pip-version-check --no-compile --editable ".[$(extras)]" >&2 ||
        fail $EXIT_UNAVAILABLE "pip could not install the Python packages (its reason stands above); cure that and run this again"
    {
        identity
        case $needs in demo) served=(demo) ;; up) served=(demo up) ;; test) served=(demo up test) ;; esac
        printf "%s $(digest)\n" "${served[@]}" # each needs all that the one before it needs
    } >"$environment/edgepanda-setup.new"
    mv "$environment/edgepanda-setup.new" "$environment/edgepanda-setup"
}

main "$@"
