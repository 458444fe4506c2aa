"""Every stable error code: what it means, what usually brings it about, and what to do. `edgepanda explain` and
docs/errors.md show this table; an error without a cure of its own takes it from here.

The causes stand in `error_causes.py`. A test finds the codes that the program raises and holds the lists against each
other.
"""

from __future__ import annotations

from typing import NamedTuple

from edgepanda.error_causes import CAUSES


class Code(NamedTuple):
    """One code, for a person: what happened, the next step, and what usually brings it about."""

    meaning: str
    cure: str
    causes: tuple[str, ...] = ()


AREAS: dict[str, dict[str, Code]] = {
    "Command line": {
        "usage": Code(
            "The command, an option or an argument cannot be used as written.", "`edgepanda COMMAND --help` shows how."
        ),
        "internal": Code(
            "A fault in EdgePanda itself.", "Run it again with -v, and report what it prints. Nothing recorded is lost."
        ),
        "interrupted": Code(
            "The process that did the work ended before the work did.",
            "Look what became of the device; `edgepanda resolve ID` says so to the site if the task is uncertain.",
        ),
        "extra_missing": Code(
            "An optional part is not installed.", "Install the extra that the message names, as in 'edgepanda[broker]'."
        ),
        "already_running": Code(
            "`edgepanda up` runs for this configuration already.",
            "`edgepanda status` shows how the site stands; end the first one before you start another.",
        ),
        "process_ended": Code(
            "One of the processes that `edgepanda up` starts ended before it was ready.",
            "Its own last lines say why; start it alone, as in `edgepanda node -v`.",
        ),
        "man_unwritable": Code("The manual pages cannot be written there.", "Name a folder that you may write to."),
        "operator_key_missing": Code(
            "There is no operator's key for this user, so the site would not listen.",
            "`edgepanda init` makes one where the site was made; else ask an operator to let you in.",
        ),
        "site_key_missing": Code(
            "The site's key is not known on this machine.",
            "Write the public key as `key` in [site]; `edgepanda init` prints it where the site was made.",
        ),
    },
    "Configuration": {
        "config_missing": Code("There is no configuration.", "`edgepanda init` makes one, or name one with --config."),
        "config_unreadable": Code("The file cannot be read.", "Check its owner and mode; it must be UTF-8."),
        "config_unwritable": Code("The file cannot be written.", "Check owner, mode, and space on the disk."),
        "config_syntax": Code("A line is no TOML.", "Correct the line that the message names."),
        "config_key_unknown": Code(
            "There is no such key.", "Take the nearest one, or see `edgepanda config schema` for all keys."
        ),
        "config_key_missing": Code("A key that is needed is not there.", "Add it; the message has an example."),
        "config_type": Code("A value has the wrong type.", "Write what the message says is allowed."),
        "config_value": Code("A value is not allowed.", "Write what the message says is allowed."),
        "config_invalid": Code(
            "The configuration cannot be used as a whole.", "`edgepanda config check` lists all that is wrong."
        ),
        "config_changed": Code(
            "Somebody else changed the file meanwhile, so nothing was saved.", "Give the command again."
        ),
        "config_form": Code(
            "The file has a form that cannot be changed safely by a command; nothing was saved.",
            "Change it by hand with `edgepanda config edit`.",
        ),
        "config_editor": Code("The editor could not be started or failed.", "Set $EDITOR to one that is installed."),
        "invalid_broker": Code(
            "The broker's address cannot be used.", "Write it like mqtt://user@host:1883 or mqtts://host."
        ),
        "invalid_name": Code("A name is not allowed.", "Use 1 to 32 of a-z, 0-9 and '-'."),
        "invalid_key": Code("This is no public key.", "Copy it whole: ed25519: and 43 characters."),
    },
    "Broker": {
        "broker_unreachable": Code(
            "No connection to the broker.",
            "Check that it runs, its address, and the network. A node goes on by itself.",
        ),
        "broker_refused": Code(
            "The broker refuses this user or client.", "Check user and password in the broker's address."
        ),
        "broker_tls": Code(
            "The broker's certificate cannot be trusted.", "Set ca_file, and server_name if its name is not the host's."
        ),
        "broker_not_loopback": Code(
            "The embedded broker was to listen beyond this machine without passwords or without TLS.",
            "Listen on 127.0.0.1; or set users_file, and cert_file with key_file (or allow_plaintext).",
        ),
        "broker_certificate": Code(
            "The embedded broker's certificate or its key cannot be used.",
            "Both must be PEM files that belong together and may be read; the key without a password.",
        ),
        "broker_secret": Code(
            "The password of this machine's own processes for the embedded broker cannot be read.",
            "Use the account that runs `edgepanda up`, or set user and password_file in [broker].",
        ),
        "broker_users": Code(
            "The embedded broker's file of users cannot be read.",
            "`edgepanda broker user add NAME` makes it; correct what the message names; it is TOML.",
        ),
        "broker_topics": Code(
            "The broker does not pass messages on EdgePanda's topics to who subscribes to them.",
            "Allow this user to read and write `edgepanda/v1/#` (or your base); Mosquitto's acl_file: `topic "
            "readwrite edgepanda/v1/#`.",
        ),
        "broker_no_qos": Code(
            "The broker does not take messages with QoS 1, or does not acknowledge or deliver them so. "
            "EdgePanda's cards, claims and events need that.",
            "Mosquitto: remove `max_qos 0`; else raise the broker's highest QoS.",
        ),
        "broker_no_retain": Code(
            "The broker keeps no retained messages: EdgePanda's processes could not even connect, because their "
            "wills are retained.",
            "Mosquitto: `retain_available true`; else turn retained messages on.",
        ),
        "broker_no_wildcard": Code(
            "Retained messages do not come to a filter with wildcards, so that a coordinator which starts does "
            "not find its nodes.",
            "Use another broker, such as Mosquitto.",
        ),
        "broker_no_clear": Code(
            "An empty retained message does not remove the one before, so that a node that was removed would stay.",
            "Use another broker, such as Mosquitto.",
        ),
        "broker_small_messages": Code(
            "Messages as large as EdgePanda's (64 KiB and the topic) do not come through; large cards and "
            "reports would end the connection.",
            "Mosquitto: remove `message_size_limit` or set it to 131072 at least.",
        ),
        "broker_leaks": Code(
            "A new client is given retained messages that it has not asked for, past the access list.",
            "Use a newer version of the broker, or another one.",
        ),
        "broker_wide_filters": Code(
            "A filter with wildcards gives what the access list refuses by name.",
            "Use a newer version of the broker, or another one.",
        ),
        "broker_no_will": Code(
            "The will of a client that is gone is not sent, so that a node without power would look well.",
            "Use another broker, such as Mosquitto.",
        ),
        "broker_no_keepalive": Code(
            "A client that is silent is not cut off, so that a node whose power or network went would look well.",
            "Use another broker, such as Mosquitto; a hosted one may have a least keepalive, which is then to "
            "be lowered.",
        ),
        "broker_no_takeover": Code(
            "Of two connections with one client id the newer one is not the one that is heard: a node that "
            "connects again could stay deaf.",
            "Use another broker, such as Mosquitto.",
        ),
        "broker_stranger": Code(
            "Whoever knows a client id can disturb its connection with a wrong password.",
            "Use another broker, such as Mosquitto or EdgePanda's embedded one.",
        ),
        "broker_delays": Code(
            "A reply takes some 40 ms longer than it must: the broker lets small packets wait (Nagle's algorithm).",
            "Mosquitto: `set_tcp_nodelay true`; else turn on TCP_NODELAY.",
        ),
        "broker_slow": Code(
            "A message takes more than half a second at times.",
            "Look at the network and at the load of the broker's machine.",
        ),
        "broker_anonymous": Code(
            "Whoever reaches the broker comes in without a password. Nobody obeys him, but he can disturb: end "
            "connections, clear what is retained, fill queues.",
            "Mosquitto: `allow_anonymous false` and `password_file`; the embedded one: `edgepanda broker user "
            "add NAME`.",
        ),
        "broker_plaintext": Code(
            "The connection is not encrypted: who is on the network reads all, the password too.",
            "Give the broker a certificate and use mqtts:// (Mosquitto: `certfile`, `keyfile`; the embedded "
            "one: cert_file, key_file).",
        ),
        "broker_certificate_ends": Code(
            "The broker's certificate ends soon; then nobody connects any more.",
            "Renew it.",
        ),
        "broker_unanswered": Code(
            "The time was over before all was tried.",
            "Try again with a longer --timeout.",
        ),
        "broker_user_exists": Code(
            "The embedded broker has this user already.",
            "Give --replace to set a new password, or take another name.",
        ),
        "broker_user_unknown": Code(
            "The embedded broker has no such user.",
            "`edgepanda broker user list` shows them.",
        ),
        "invalid_password": Code(
            "The password cannot be used.",
            "Use 8 to 256 characters, the same twice.",
        ),
        "port_in_use": Code(
            "Something listens on this port already.",
            "Stop it (perhaps `edgepanda up` runs here), or set another port.",
        ),
        "cannot_listen": Code("The address cannot be listened on.", "Set `listen` to an address of this machine."),
        "queue_full": Code(
            "More is waiting to be sent than there is room for.", "Send less at once, or wait until the broker is back."
        ),
        "retained": Code(
            "A retained message came where only a live one counts; it was ignored.", "Send commands without retain."
        ),
    },
    "Messages and trust": {
        "bad_signature": Code(
            "A message was not signed by the key that it names.", "Check who sends there; the message did nothing."
        ),
        "unknown_key": Code(
            "Nobody at the site has this key.", "An operator lets it in: `edgepanda nodes add NAME KEY`."
        ),
        "wrong_site": Code("The message is for another site.", "Check [site] name and key."),
        "newer_version": Code("The message is of a newer protocol.", "Update EdgePanda on this machine."),
        "malformed": Code("A message or request is not of the right form.", "The message names the member."),
        "oversized": Code("A message is too large.", "Send less: control messages have at most 64 KiB."),
        "unsupported": Code("This is not known here.", "The message lists what is; perhaps one side is older."),
        "not_allowed": Code("This role may not ask for that.", "Ask an operator of the site."),
        "not_let_in": Code(
            "The coordinator does not answer this node.",
            "At the site: `edgepanda nodes add NAME KEY`; the message has both.",
        ),
        "no_answer": Code(
            "No answer in time.", "Is the coordinator running? `edgepanda status` says; --timeout waits longer."
        ),
        "counter_missing": Code("A request that changes something carries no counter.", "Update the client."),
        "counter_used": Code("A request was seen before and did nothing again.", "Give the command anew."),
        "idempotency_conflict": Code(
            "This id names another task already.", "Use a new id, or repeat the request exactly as it was."
        ),
        "key_known": Code("This key is at the site already, under another name.", "Use that name, or remove it first."),
        "name_taken": Code("Another peer has this name.", "Choose another; names are unique at a site."),
        "unknown_peer": Code("Nobody has this name.", "`edgepanda nodes` lists who is there."),
        "peers_signature": Code("A list of peers is not signed by the site.", "Check [site] key; it was not taken."),
        "peers_older": Code("A list of peers is older than ours.", "Nothing to do; a repeated one is ignored."),
        "peers_operator": Code(
            "An operator can be let in by an operator only.", "Let one who is let in already sign the request."
        ),
        "key_unreadable": Code("A private key cannot be read.", "Check that the file is there, and its owner."),
        "key_unwritable": Code("A private key cannot be written.", "Check the folder's owner and the disk."),
        "key_damaged": Code("A private key's file is damaged.", "Bring it back from a copy; else make a new identity."),
        "key_exposed": Code("Others may read a private key.", "chmod 600 the file; if others did read it, replace it."),
    },
    "Tasks and devices": {
        "invalid_args": Code(
            "An argument is not allowed.", "`edgepanda card --all` lists arguments with their limits."
        ),
        "limit": Code("A value is beyond its limit.", "Stay within the limits that `edgepanda card --all` shows."),
        "ambiguous": Code("Several devices or nodes fit.", "Name one with --node or --device."),
        "unknown_capability": Code("No node can do this.", "`edgepanda card --all` lists what can be done here."),
        "unknown_device": Code("There is no such device.", "`edgepanda card --all` lists them."),
        "unknown_driver": Code(
            "There is no such driver.", "Take the nearest one; one of your own goes by the path of its .py file."
        ),
        "device_exists": Code(
            "The configuration has a device or capability of this name.",
            "Choose another name, or change that one: `edgepanda device set`, `edgepanda config edit`.",
        ),
        "device_unusable": Code(
            "The driver says that the device cannot be used here; nothing was written.",
            "The message has its reason and cure; --anyway writes it all the same.",
        ),
        "pin_conflict": Code(
            "Two devices have one GPIO line, which may be named by its number and by its chip.",
            "Give one of them another pin; the message names both.",
        ),
        "unknown_node": Code("There is no such node.", "`edgepanda nodes` lists them."),
        "node_away": Code(
            "The node is not connected, so it cannot be asked.", "`edgepanda nodes` says when it was last heard."
        ),
        "node_busy": Code(
            "The node has open attempts, whose reports would be lost.",
            "Wait for them, or end them: one is named.",
        ),
        "node_restarted": Code("A request was meant for an earlier start of the node, and did nothing.", "Ask again."),
        "unknown_task": Code("There is no such task.", "`edgepanda tasks` lists them."),
        "invalid_task_id": Code("This cannot name a task.", "Use 8 to 40 of a-z, 0-9 and '-'."),
        "invalid_state": Code("The task stands where this cannot be done.", "`edgepanda show ID` says how it stands."),
        "consent_required": Code(
            "The action cannot be undone and needs a person's consent.", "This version cannot give it yet."
        ),
        "unavailable": Code("The device cannot be used now.", "`edgepanda card` has the reason and the cure."),
        "busy": Code("The device or pin is in use.", "Wait, or end what has it; the message says who."),
        "superseded": Code("A newer command for the device came first.", "Nothing to do; the newest holds."),
        "stopped": Code(
            "An emergency stop is in force at the node, or ended the work.",
            "`edgepanda status` shows who stopped and why; `edgepanda release` ends it, once it is safe.",
        ),
        "link_loss": Code(
            "Broker or coordinator were gone for longer than the device's link_loss, so it went to its safe state.",
            "Look at the link (`edgepanda doctor`), then command it again; link_loss in its table sets the time.",
        ),
        "timeout": Code("The work took longer than its limit.", "Raise the time-out if the work may take longer."),
        "cancelled": Code("Somebody asked for the end.", "Nothing to do."),
        "expired": Code("The task was too old to begin.", "Submit it again; --valid-for gives more time."),
        "lost": Code("The node that had the task was not heard of again.", "`edgepanda nodes` shows which are away."),
        "io": Code("The hardware did not answer as it should.", "Check wires and power, then try again."),
        "exit_status": Code(
            "The program ended with another exit status than 0, or by a signal.",
            "Read its output in `edgepanda show ID`, and try it alone with the same arguments.",
        ),
        "no_result": Code(
            "The program ended well and wrote no result.json.",
            "Let it write one into its work directory; the message has an example.",
        ),
        "bad_result": Code(
            "What the program wrote as result.json cannot be used.", "Correct what the message names; it is JSON."
        ),
        "said_so": Code("The program itself says that it failed.", "`edgepanda show ID` has its words and its output."),
        "missing_output": Code(
            "A file that the program must leave is not there.",
            "Let it write into `outputs/` of its work directory, or correct `required_outputs` in the configuration.",
        ),
        "no_evidence": Code(
            "The work says that it succeeded, and shows nothing for it.",
            "Let its driver or program report evidence; `edgepanda show ID` has what it said.",
        ),
        "criterion_not_met": Code(
            "A criterion of the task was not met.", "`edgepanda show ID` has each criterion with its answer."
        ),
        "failed": Code("The work says that it failed.", "`edgepanda show ID` has its reason and output."),
        "interlock": Code(
            "The device may not act as things stand, for safety's sake.", "The message says what is in the way."
        ),
        "no_permit": Code(
            "The coordinator did not permit the work to begin in time.", "Nothing was done; the task is tried again."
        ),
        "lease_over": Code(
            "The node's right to the task ran out before it began.", "Nothing was done; the task is tried again."
        ),
        "draining": Code("The node is ending and takes no new work.", "Try again when it is back."),
        "fence_retired": Code("A report came for an attempt that counts no more.", "Nothing to do; it is recorded."),
    },
    "Ledger and coordinator": {
        "second_coordinator": Code("Another coordinator serves this site.", "Stop one of them: a site has one."),
        "epoch_stale": Code("A coordinator of an earlier start speaks.", "Stop the old one; nodes do not obey it."),
        "ledger_foreign": Code(
            "The coordinator has another ledger than the one that this node worked for.",
            "If it is right, start the node with --accept-ledger as the message says.",
        ),
        "ledger_behind": Code(
            "The ledger lacks what this node has seen: an older copy was brought back.",
            "Bring back the newest, or accept it with --accept-ledger.",
        ),
        "chain_changed": Code(
            "An entry of the ledger is not what was recorded.", "Somebody changed the file: bring back a copy."
        ),
        "chain_missing": Code("Entries of the ledger are missing.", "Bring back a copy that has them."),
        "chain_reordered": Code(
            "Entries of the ledger stand in another order.", "Somebody changed the file: bring back a copy."
        ),
        "chain_rewritten": Code(
            "The ledger differs from what a node has seen of it.", "Somebody made it anew: bring back the true one."
        ),
        "chain_shortened": Code(
            "A node has seen more entries than the ledger has.", "Its end was cut off, or an older copy came back."
        ),
        "chain_foreign": Code("A node has seen another ledger.", "Check which of the two is the site's."),
        "payload_changed": Code(
            "What an entry of the ledger says is not what was recorded.",
            "Somebody changed the file: bring back a copy.",
        ),
        "payload_stray": Code(
            "The ledger has contents for an entry that it does not have.",
            "Somebody changed the file: bring back a copy.",
        ),
        "task_without_event": Code(
            "The ledger has a task that no entry tells of.", "Somebody changed the file: bring back a copy."
        ),
        "task_state_changed": Code(
            "A task's state is not the one that the ledger's entries tell.",
            "Somebody changed the file: bring back a copy.",
        ),
        "ledger_no_event": Code("The ledger has no entry of this number.", "`edgepanda audit log` lists them."),
    },
    "Storage": {
        "storage_full": Code(
            "The disk is full.", "Free some space on this file system; what was recorded so far is intact."
        ),
        "storage_readonly": Code(
            "The file cannot be written.",
            "Make the file and its folder writable for this user, or remount the file system read-write.",
        ),
        "storage_unwritable": Code("Writing failed.", "Look at the system's log for errors of this disk or card."),
        "storage_damaged": Code(
            "A file is damaged.",
            "Stop the process, keep the damaged file, and put a copy from before the damage in its place.",
        ),
        "storage_refused": Code(
            "SQLite refused what was to be done, and not for want of the disk.",
            "Run it again with -v, and report what it prints; what was recorded is intact.",
        ),
        "storage_locked": Code(
            "Another process has this file.", "Stop that process first, or ask it instead of opening its file."
        ),
        "storage_newer": Code(
            "A newer EdgePanda wrote this file.",
            "Update EdgePanda, or put back the copy that was kept before the update.",
        ),
        "storage_older": Code(
            "The file has an older format.",
            "Start the process that owns the file once; it updates the file and keeps a copy.",
        ),
        "storage_foreign": Code("This is not a file of EdgePanda's.", "Name another file, or move this one away."),
        "storage_missing": Code(
            "There is no such file.", "Check the path; the process that owns the file makes it at its first start."
        ),
        "storage_closed": Code(
            "The file is closed already.", "Give the command again; if it stays, report it: a fault of ours."
        ),
        "storage_busy": Code(
            "More waits to be written than there is room for.",
            "Send less at once; the disk is slower than what arrives.",
        ),
        "document_damaged": Code("A document is damaged.", "The generation before is beside it; see the message."),
        "document_newer": Code("A newer EdgePanda wrote this document.", "Update EdgePanda on this machine."),
        "document_unlocked": Code("A document was to be changed without its lock.", "Report it: a fault of ours."),
        "journal_duplicate": Code("The journal has this attempt already.", "Nothing to do; it is not run twice."),
        "journal_order": Code("A report came out of order.", "Report it if you see this: it is a fault of ours."),
        "journal_unknown": Code("The journal has no such attempt.", "Report it: it is a fault of ours."),
        "outbox_full": Code("Too many reports wait for the coordinator.", "Bring the coordinator back."),
        "socket_unusable": Code("The local socket cannot be made.", "Check the run folder's owner and mode."),
    },
    "Doctor": {
        "doctor_not_checked": Code(
            "`edgepanda doctor` could not look at this, so nothing is known of it.", "Do what the finding says first."
        ),
        "doctor_late": Code("A check was not done in its time.", "Give the command again with a longer --timeout."),
        "doctor_failed": Code("A check of the doctor's own failed.", "Report it with `edgepanda doctor --report`."),
        "report_unwritable": Code(
            "The report's archive cannot be written; nothing is overwritten.", "Name another file."
        ),
        "config_exposed": Code(
            "Others may read a password in the configuration.", "Let only its owner read it, or use password_file."
        ),
        "state_exposed": Code("Others may write into the state folder.", "Give it the mode 0700."),
        "key_owner": Code(
            "A key belongs to another user than its state folder.", "Give it to the user that the processes run as."
        ),
        "clock_wrong": Code("The clock shows a time that cannot be.", "Let it be set over the network."),
        "clock_behind": Code(
            "State was written at a time that has not come yet.", "Look with `timedatectl` which of the two is right."
        ),
        "clock_unsynchronised": Code(
            "Nobody sets the clock over the network.", "`sudo timedatectl set-ntp true`, or set up another time server."
        ),
        "clock_jumps": Code("The clock was set again and again.", "Leave one program that sets it."),
        "disk_low": Code("Little space is left on the disk.", "Free some space before it is full."),
        "disk_volatile": Code("State is kept in memory.", "Set state_dir to a folder on a disk."),
        "disk_worn": Code("The card is near the end of its life.", "Make a backup now and change it."),
        "memory_low": Code("Little memory is left.", "End what is not needed, or give the board swap."),
        "memory_killed": Code(
            "The kernel ended processes for want of memory.", "The kernel's log names them; see what needs so much."
        ),
        "hardware_hot": Code("The processor is hot or slows down.", "Give it air or a heat sink."),
        "hardware_under_voltage": Code(
            "The board gets too little voltage.", "Take a supply and a cable that are made for this board."
        ),
        "wifi_weak": Code("The Wi-Fi signal is weak.", "Move the board or the access point."),
        "wifi_power_saving": Code(
            "Wi-Fi saves power, so that messages wait.", "Switch it off; the finding has the command."
        ),
        "ledger_damaged": Code(
            "The ledger does not hold: entries or tasks are not as they were written.",
            "Stop the coordinator, keep the file, and look at `edgepanda audit verify`.",
        ),
        "node_not_running": Code("This machine's node does not run.", "`edgepanda up` starts it."),
        "node_alone": Code(
            "The node runs without broker or coordinator.",
            "See what is said of those; its own devices obey all the same.",
        ),
        "node_reports_wait": Code("Reports wait for the coordinator.", "Bring the coordinator back; nothing is lost."),
        "device_fault": Code("A device's driver cannot use it.", "Do what the finding says; it is the driver's word."),
        "group_missing": Code(
            "The user is not in the group that may open the device.",
            "Add the user, then log in again or restart the node.",
        ),
        "group_not_in_effect": Code(
            "The user is in the group, but the process is older than that.", "Log in again, or restart the node."
        ),
        "group_unknown": Code(
            "The device belongs to no group that one could join.",
            "Make the group and a udev rule, as the finding shows.",
        ),
        "unit_failed": Code("A systemd unit of ours failed.", "`journalctl -u UNIT` shows why; then start it again."),
        "unit_stopped": Code("A systemd unit is enabled and does not run.", "`sudo systemctl start UNIT`."),
        "unit_restarts": Code("A systemd unit is started again and again.", "`journalctl -u UNIT` shows why it ends."),
    },
}

CODES: dict[str, Code] = {
    code: entry._replace(causes=CAUSES.get(code, ())) for area in AREAS.values() for code, entry in area.items()
}


def usual_cure(code: str) -> str:
    """The next step of a code as a clause, to stand in an error after a semicolon; empty where nothing has to be done,
    and for a code of another version.
    """
    entry = CODES.get(code)
    cure = entry.cure.removesuffix(".") if entry and not entry.cure.startswith("Nothing ") else ""
    return cure[:1].lower() + cure[1:]


def as_markdown() -> str:
    """The whole of docs/errors.md."""
    lines = [
        "# Errors",
        "",
        "Each error has a stable code in brackets, `error: ... [code]`, and `error.code` with `--json`. The message",
        "itself says what was found, where, and what to do; `edgepanda explain CODE` shows the line below. This page",
        "is made from `edgepanda/error_codes.py`.",
    ]
    for area, codes in AREAS.items():
        lines += ["", f"## {area}", "", "| code | what happened | usual causes | what to do |", "|---|---|---|---|"]
        for code in codes:
            meaning, cure, causes = CODES[code]
            lines.append(f"| `{code}` | {meaning} | {'; '.join(causes)} | {cure} |")
    return "\n".join(lines) + "\n"
