"""Takes secrets out of what people and programs get to see: logs, errors, output, reports. Pure: text in, text out.

What is a secret is told by its context, so that ids and digests stay:

- a value after a name such as password, secret, token, psk; not after one that says where it is (`password_file`)
- a password in a URL, `mqtt://user:password@host`, and behind an option, `--password x`, `mosquitto_pub -P x`
- headers (`Authorization: ...`, `Bearer ...`), JSON web tokens, private keys in PEM
- our own private keys: base64 of 32 bytes, which is 44 characters with one `=` at the end. Nothing else that we write
  has this form: digests are hex, signatures have 88 characters, public keys a prefix and no padding.

A secret that is known (read from its file) is passed as `known` and goes wherever it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

GONE = "***"
SHORTEST_KNOWN = 4  # characters; a shorter one goes by its context alone, else it would eat ordinary words
_MOST_PASSES = 8

_NAME = (
    r"(?:passw|passphrase|secret|token(?!s|ize)|api[_-]?key|private[_-]?key|access[_-]?key|credential"
    r"|(?<![a-z])psk|cookie)"
)
_POINTERS = ("_file", "_env", "_path", "_stdin")  # where a secret is, which is none itself
_SECRET_NAME = re.compile(_NAME, re.IGNORECASE)
_REST = r"[\w.-]{0,40}"
_POINTER = r"(?!(?:[\w.-]{0,40}[_-](?:file|env|path|stdin)\b))"
_LONG = r"\"\"\"[\s\S]{1,4096}?\"\"\"|'''[\s\S]{1,4096}?'''"
_QUOTED = r"\"(?:[^\"\\\r\n]|\\.)+\"|'(?:[^'\\\r\n]|\\.)+'"
_PLAIN = r"[^\s,;\"'\[\]{}()][^\s,;\"']*"

_PEM = re.compile(
    r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----)"
    r"(?:(?!-----BEGIN)[\s\S]){0,16384}?(?=-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----)"
)
_PEM_CUT = re.compile(  # its end was cut off: what follows goes
    r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----)(?!\*\*\*)(?:(?!-----BEGIN)[\s\S]){1,16384}"
)
_PEM_TAIL = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----")
_PEM_LINE = re.compile(r"(?:(?<!\S)|(?<=\\[nrt]))[A-Za-z0-9+/=]{16,76}(?=\s|\\|$)")
_PEM_LARGEST = 16384
_KEY = re.compile(  # not within a longer run, but behind an escaped line end
    r"(?:(?<![A-Za-z0-9+/_-])|(?<=\\[nrt]))(?<!sha256[-:=])(?:[A-Za-z0-9+/]{43}|[A-Za-z0-9_-]{43})=(?!=)"
)
_URL = re.compile(r"(://[^:@/\s\"']{0,256}):[^\s]{1,2048}@")
_URL_QUOTED = re.compile(r"([\"'])([A-Za-z][A-Za-z0-9+.-]{0,30}://[^:@/\s\"']{0,256}):[^\"'\r\n]{1,2048}@")
_HEADER = re.compile(r"((?:authorization|(?:set-)?cookie)[\"']?\s{0,8}[:=]\s{0,8}[\"']?)[^\"'\r\n]+", re.IGNORECASE)
_BEARER = re.compile(r"\b(Bearer|bearer|Basic)\s+(?=[^\s\"',;]{8,})(?=[^\s\"',;]*[A-Z0-9=])[^\s\"',;]+")
_WEB_TOKEN = re.compile(r"\beyJ[\w-]{8,}\.[\w-]{2,}(?:\.[\w-]*)?")
_ASSIGNED = re.compile(
    rf"({_NAME}{_POINTER}{_REST}[\"']?\s{{0,8}}(?:=>|[:=])\s{{0,8}})"
    rf"({_LONG}|{_QUOTED}|\{{[^{{}}\r\n]+\}}|\[[^\[\]\r\n]+\]|{_PLAIN})",
    re.IGNORECASE,
)
_OPTION = re.compile(
    rf"((?<![\w-])--?[\w-]{{0,40}}?{_NAME}{_POINTER}[\w-]{{0,40}}[\"']?(?:\s{{0,8}},\s{{0,8}}|[ \t]{{1,8}}))"
    rf"({_QUOTED}|(?!-){_PLAIN})",
    re.IGNORECASE,
)
_SHORT_OPTION = re.compile(  # of well-known programs whose option does not say what it is
    r"(\b(?:mosquitto_(?:pub|sub|rr)|sshpass)\b[^\r\n]{0,400}?[\s\"']-[Pp](?:[\"']?\s{0,8},\s{0,8}|[ \t]{0,8}))"
    rf"({_QUOTED}|(?!-){_PLAIN})"
)
_LOGIN_OPTION = re.compile(
    r"(\bcurl\b[^\r\n]{0,400}?[\s\"'](?:-u|--user)(?:[\"']?\s{0,8},\s{0,8}|[\s=]{0,8})[\"']?[^\s:\"']{1,256}:)[^\s\"']+"
)
_MAY_HOLD = re.compile(
    rf"{_NAME}|authorization|bearer|basic|://|-----|[A-Za-z0-9+/_-]{{43}}=|eyJ|mosquitto_|sshpass|curl", re.IGNORECASE
)


def redact(text: str, known: Iterable[str] = ()) -> str:
    """The text without secrets; each is replaced by `***`. What has none is given back as it is.

    Doing it again changes nothing. `known`: secrets that go wherever they stand, if they have `SHORTEST_KNOWN`
    characters.
    """
    secrets = sorted((each for each in set(known) if len(each) >= SHORTEST_KNOWN and each.strip("*")), key=len)
    for _ in range(_MOST_PASSES):
        before = text
        for secret in reversed(secrets):
            text = text.replace(secret, GONE)
        if _MAY_HOLD.search(text):
            text = _once(text)
        if text == before:
            break
    return text


def redact_value(value: Any, key: str = "", known: Iterable[str] = ()) -> Any:
    """A value as JSON and TOML have it, without secrets: texts as in `redact`, and all that has a secret's name.

    `key`: the name that the value has, if any.
    """
    if isinstance(value, dict):
        return {name: redact_value(item, _within(key, str(name)), known) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return _words([redact_value(item, key, known) for item in value])
    if value is None or isinstance(value, bool) or value == "":
        return value
    if is_secret_name(key):
        return GONE
    return redact(value, known) if isinstance(value, str) else value


def is_secret_name(name: str) -> bool:
    """True for the name of something that is secret, such as `password` or `api_key`; false for where it is."""
    return bool(_SECRET_NAME.search(name)) and not name.lower().replace("-", "_").endswith(_POINTERS)


def _within(outer: str, name: str) -> str:
    """What stands in a table that is secret is secret, whatever its own name."""
    return outer if is_secret_name(outer) else name


def _words(words: list[Any]) -> list[Any]:
    """A command line in words: the secret stands in the word behind its option."""
    if not all(isinstance(word, str) for word in words):
        return words
    program = words[0].rpartition("/")[2] if words else ""
    shown: list[Any] = list(words)
    for at, option in enumerate(words[:-1]):
        named = option.startswith("-") and "=" not in option and is_secret_name(option)
        short = option in ("-P", "-p") and (program.startswith("mosquitto_") or program == "sshpass")
        if (named or short) and not words[at + 1].startswith("-"):
            shown[at + 1] = GONE
        elif program == "curl" and option in ("-u", "--user"):
            shown[at + 1] = f"{words[at + 1].partition(':')[0]}:{GONE}"
    return shown


def _once(text: str) -> str:
    text = _PEM.sub(rf"\1{GONE}", text)
    text = _PEM_CUT.sub(rf"\1{GONE}", text)
    text = _without_tails(text)
    text = _KEY.sub(GONE, text)
    text = _URL_QUOTED.sub(rf"\1\2:{GONE}@", text)
    text = _URL.sub(rf"\1:{GONE}@", text)
    text = _HEADER.sub(rf"\1{GONE}", text)
    text = _BEARER.sub(rf"\1 {GONE}", text)
    text = _WEB_TOKEN.sub(GONE, text)
    for pattern in (_ASSIGNED, _OPTION, _SHORT_OPTION):
        text = pattern.sub(_keeping_quotes, text)
    return _LOGIN_OPTION.sub(rf"\1{GONE}", text)


def _keeping_quotes(found: re.Match[str]) -> str:
    value = found[2]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{found[1]}{quote}{GONE}{quote}"


def _without_tails(text: str) -> str:
    """Private keys in PEM whose beginning was cut off: the lines of base64 before the end go."""
    parts, start = [], 0
    for end in _PEM_TAIL.finditer(text):
        cut = max(start, end.start() - _PEM_LARGEST)
        parts += [text[start:cut], _PEM_LINE.sub(GONE, text[cut : end.start()]), end[0]]
        start = end.end()
    return "".join([*parts, text[start:]])
