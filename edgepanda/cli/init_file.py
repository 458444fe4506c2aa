"""The text of the configuration that `init` writes; config/edgepanda.toml is the same text."""

from __future__ import annotations

import json

_SITE_KEY = """\
# The site's public key. Empty on the machine that has the private one (its coordinator's).
key = {site_key}
"""

_COORDINATOR = """\
[coordinator]
# Without this table this machine runs no coordinator; a site has one.
# Seconds after which a silent node loses its work; beats renew a lease.
# lease_ttl = 30.0

"""

_TEXT = """\
# EdgePanda: the configuration of one machine. `edgepanda up` starts what it enables.
# Lines that begin with "# key =" show the defaults. Paths are relative to this file.

# Where state is kept: keys, ledger, journal.
# state_dir = ".edgepanda"

[site]
name = {site}
{key}# First level of all MQTT topics.
# base = "edgepanda"

[broker]
# The site's broker: mqtt://user@host:1883, or mqtts:// with TLS; IPv6 in brackets. Without url `edgepanda up` starts
# the embedded broker, which serves this machine only.
{broker}# Where the embedded one listens: loopback only. Port 0 lets the system choose.
# listen = "127.0.0.1:1883"
# The password's file, or the variable that holds it, instead of a password in the URL.
# password_file = ""
# password_env = ""
# For mqtts: the PEM file of the authority that signed the broker's certificate (default: the system's authorities),
# and the name in the certificate where it is not the host's.
# ca_file = ""
# server_name = ""

{coordinator}[node]
# Without this table this machine runs no node. The name is unique at the site: 1 to 32 of a-z, 0-9 and "-".
name = {node}
# How many attempts it holds at most at one time.
# slots = 16
# Seconds between two signs of life.
# beat = 10.0
# Seconds that running work gets when the node is asked to end.
# drain = 10.0
# Labels that a task may ask for: `edgepanda submit ... --label room=attic`.
# labels = {{ room = "attic" }}

# A device: its name, its driver, and what the driver wants to know. This one works without hardware.
[devices.pan]
driver = "servo"
pin = 18
start = 0.0        # degrees: where it stands when nobody knows
safe = "detach"    # or an angle: where it goes on stop and on exit
simulate = true    # remove this line to drive a real servo on GPIO 18

# A capability of your own: a program and its arguments, never a shell line. Tier (0 observes, 1 can be undone) and
# replay ("safe": doing it again changes nothing; "unsafe": anything else) must be declared. The program runs in a
# folder of its own and says there, in result.json, how it went: without that it has failed, also at exit code 0.
# [capabilities."disk.free"]
# argv = ["sh", "-c", 'df -h / && echo "{{\\"outcome\\": \\"succeeded\\"}}" >result.json']
# tier = 0
# replay = "safe"
"""


def render(*, site: str, site_key: str, broker: str, node: str) -> str:
    """The text for these names; with a `site_key` the machine runs no coordinator."""
    return _TEXT.format(
        site=json.dumps(site),
        key=_SITE_KEY.format(site_key=json.dumps(site_key)) if site_key else '# key = ""\n',
        broker=f"url = {json.dumps(broker)}\n" if broker else '# url = ""\n',
        coordinator="" if site_key else _COORDINATOR,
        node=json.dumps(node),
    )
