"""The environment and the `.env` file: the only module that reads environment variables.

Invariant: a `.env` file may have come with a cloned repository. It can add keys and a program's own
variables, but it never says where requests go, which programs run or what is allowed.
"""

import codecs
import errno
import getpass
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote

from windlass.core.errors import ConfigError

CAPTURE_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
CAPTURE_VALUES = ("true", "1", "span_only", "span_and_event")

SECRET_CHARS_MIN = 8
SECRET_SUFFIXES = ("APIKEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "PASSCODE")
SECRET_WORDS = frozenset(
    (
        *SECRET_SUFFIXES,
        *(f"{suffix}S" for suffix in SECRET_SUFFIXES),
        *("KEY", "KEYS", "CREDENTIAL", "CREDENTIALS", "CREDS", "COOKIE", "COOKIES"),
        *("JWT", "BEARER", "MNEMONIC"),
    )
)
SECRET_LAST_WORDS = frozenset(
    (
        "PASS",
        "SK",
        "PWD",
        "PW",
        "PAT",
        "AUTH",
        "DBPASS",
        "SSHPASS",
        "USERPASS",
        "CRED",
        "PIN",
        "WEBHOOK",
        "DSN",
    )
)
"""Words that mean a secret at the end of a name only: `PASS_THROUGH` and `AUTH_MODE` hold none."""
SECRET_PHRASES = ("CONNECTION_STRING", "CONNECTIONSTRING", "AUTH_CONFIG", "SECRET_ID")
"""Parts of a name that hold a secret among other things."""
SECRET_LISTS = frozenset(("TOKENS", "KEYS", "SECRETS", "APIKEYS", "PASSWORDS"))
HARMLESS_SUFFIXES = frozenset(
    ("FILE", "PATH", "DIR", "URL", "URI", "NAME", "USER", "TYPE", "ID", "COUNT", "SOCK")
)
HARMLESS_NAMES = frozenset(("PWD", "OLDPWD"))
"""The folder that a shell is in, and the one before it."""
LIST_SEPARATORS = re.compile(r"[\s,;|]+")
URL_PASSWORD = re.compile(r"://[^\s/@:]*+:([^\s/@]++)@")
ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*)")
DOTENV_FILE = ".env"
DOTENV_BYTES_MAX = 262_144
# Where requests go, how programs are found and started, whose files they are, and what Windlass
# may do. A repository must not decide any of that for the person who cloned it.
_NEVER_FROM_DOTENV = (
    r"WINDLASS_.*|OTEL_.*"
    r"|.*_BASE_URL|.*_API_(?:BASE|URL|HOST)|.*_ENDPOINT|OLLAMA_HOST|.*PROXY.*"
    r"|AWS_ENDPOINT_URL.*|AWS_CONTAINER_.*|AWS_CONFIG_FILE|.*_METADATA_.*|.*_AUTHORITY_HOST"
    # Files of credentials say where tokens are sent, and which file holds one.
    r"|.*_CREDENTIALS(?:_FILE)?|.*_TOKEN_FILE|GOOGLE_EXTERNAL_.*|CLOUDSDK_.*"
    r"|PATH|(?:LIBRARY|CLASS|GO|MAN|C|INFO)_?PATH|HOME|SHELL|USER|LOGNAME|LANG|LC_.*|TZ|TERM|TMPDIR|TMP|TEMP|XDG_.*"
    r"|LD_.*|DYLD_.*|PYTHON.*|NODE_.*|NPM_.*|PERL5.*|RUBY.*|_?JAVA_.*|JDK_.*|BASH.*|ENV|IFS|PS\d"
    r"|SHELLOPTS|PROMPT_COMMAND|SSL.*|REQUESTS_CA_BUNDLE|CURL_.*|GIT_.*|SSH_.*|DOCKER_HOST"
    r"|VIRTUAL_ENV|PIP_.*|UV_.*|EDITOR|VISUAL|PAGER|BROWSER|HOSTALIASES|LOCALDOMAIN|RES_OPTIONS"
    r"|SOURCE_DATE_EPOCH|MALLOC_.*|GLIBC_.*|GCONV_.*"
)
"""A pattern, for names in any case. It is compiled when a file is read, which few programs do."""


def read_environment(folder: Path | None = None) -> Mapping[str, str]:
    """Return the environment with what the folder's `.env` file adds; set variables stay.

    Of the file, only variables count that `may_come_from_dotenv`.
    """
    added = read_dotenv(folder or Path.cwd())
    if not added:
        return os.environ
    usable = {name: value for name, value in added.items() if may_come_from_dotenv(name)}
    return {**usable, **os.environ}


def read_process_environment() -> Mapping[str, str]:
    """Return the environment of this process alone, without any file."""
    return os.environ


def read_dotenv(folder: Path) -> dict[str, str]:
    """Return all variables of a folder's `.env` file; none if there is no plain file.

    Raises ConfigError if it is not text.
    """
    path = folder / DOTENV_FILE
    try:
        data = read_regular_file(path, inside=folder, bytes_max=DOTENV_BYTES_MAX)
    except OSError:
        return {}
    return dict(parse_assignments(decode_env_file(data, path)))


def may_come_from_dotenv(name: str) -> bool:
    """Whether a `.env` file may set a variable: keys and a program's own variables.

    Base URLs, proxies, `WINDLASS_*`, `PATH`, `LD_*`, `PYTHON*` and their like it may not set.
    """
    return re.fullmatch(_NEVER_FROM_DOTENV, name, re.IGNORECASE) is None


def read_regular_file(path: Path, *, inside: Path | None = None, bytes_max: int) -> bytes:
    """Return the content of a regular file. Never waits, whatever else has this name.

    Raises OSError, with the reason as its `strerror`, if there is no such file, if it is a pipe, a
    device or a folder, if it is a link that leads out of the folder `inside`, or if it is larger
    than `bytes_max`.
    """
    try:
        real = path.resolve(strict=True)
    except RuntimeError:
        raise OSError(errno.ELOOP, "it is a symbolic link to itself", str(path)) from None
    if inside is not None and not real.is_relative_to(inside.resolve()):
        reason = f"it is a link that leads out of {inside}"
        raise OSError(errno.EPERM, reason, str(path))
    # Looked at before it is opened, because opening a device can have its own effect.
    _require_regular(real.lstat(), path)
    # The path may have been replaced since: a link is not followed, and a pipe does not block.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(real, flags), "rb") as file:
        _require_regular(os.fstat(file.fileno()), path)
        data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        reason = f"it is larger than {bytes_max // 1024} KiB"
        raise OSError(errno.EFBIG, reason, str(path))
    return data


def _require_regular(found: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(found.st_mode):
        reason = "it is not a regular file but a pipe, a device, a socket or a folder"
        raise OSError(errno.EINVAL, reason, str(path))


def decode_env_file(data: bytes, path: Path) -> str:
    """Return the text of a `.env` file. Raises ConfigError: a file in doubt is never ignored."""
    is_utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = data.decode("utf-16" if is_utf16 else "utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ConfigError(f"{path} is not UTF-8 text, so it cannot be read: save it as UTF-8")
    return text


def xdg_folder(kind: str, default: str) -> Path:
    """Return the user's folder for Windlass; `kind` is CONFIG, DATA, STATE or CACHE (XDG)."""
    folder = Path(os.environ.get(f"XDG_{kind}_HOME", ""))
    if not folder.is_absolute():
        # The XDG specification says that a relative path must be ignored.
        folder = Path.home() / default
    return folder / "windlass"


def live_socket_folder() -> Path:
    """Return the folder of the sockets by which watchers of other processes see deltas.

    The sandbox hides it from the commands of a model.
    """
    return xdg_folder("STATE", ".local/state") / "live"


def signing_key_folder() -> Path:
    """Return the folder of the key by which journals in files are signed.

    The sandbox hides it from the commands of a model.
    """
    return xdg_folder("DATA", ".local/share") / "keys"


def private_registry_folder() -> Path:
    """Return the folder that lists the journals and notes which this user's processes opened.

    The sandbox hides it from the commands of a model.
    """
    return xdg_folder("STATE", ".local/state") / "private"


def workspaces_folder() -> Path:
    """Return the folder of the folders that callers of a service work in.

    The sandbox shows a command none of them but its own.
    """
    return xdg_folder("STATE", ".local/state") / "workspaces"


def captures_content(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether traces may contain messages, as OpenTelemetry's own variable says."""
    if environ is None:
        environ = read_environment()
    return environ.get(CAPTURE_VARIABLE, "").strip().lower() in CAPTURE_VALUES


def find_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the values that look secret, by the names of their variables.

    A variable is secret by its name (`…_KEY`, `…_TOKEN`, `…_PASS`). So is the password inside a
    URL, whatever the name of its variable. In a list of secrets, each item counts by itself too.
    """
    found = {name: value for name, value in environ.items() if _is_secret(name, value)}
    for name, value in list(found.items()):
        if not SECRET_LISTS.isdisjoint(_words_of(name)):
            items = [item for item in LIST_SEPARATORS.split(value) if len(item) >= SECRET_CHARS_MIN]
            found |= {f"{name}.{number}": item for number, item in enumerate(items, 1)}
    for name, value in environ.items():
        address = URL_PASSWORD.search(value) if "://" in value else None
        if not address:
            continue
        for number, password in enumerate(dict.fromkeys((address[1], unquote(address[1])))):
            if len(password) >= SECRET_CHARS_MIN:
                # The value as a whole may be a secret by its name.
                found[f"{name}.password{number or ''}" if name in found else name] = password
    return found


def _is_secret(name: str, value: str) -> bool:
    if name.upper() in HARMLESS_NAMES or len(value) < SECRET_CHARS_MIN:
        return False
    words = _words_of(name)
    last = words[-1]
    has_phrase = any(phrase in name.upper() for phrase in SECRET_PHRASES)
    if last in HARMLESS_SUFFIXES and not has_phrase:
        return False
    if last == "TOKENS" and value.isdigit():
        return False  # How many tokens a model may use.
    has_secret_name = (
        not SECRET_WORDS.isdisjoint(words)
        or last in SECRET_LAST_WORDS
        or last.endswith(SECRET_SUFFIXES)
        or has_phrase
    )
    # The value of some variables is only the path of the file that holds the secret.
    return has_secret_name and not _is_path(value)


def _words_of(name: str) -> list[str]:
    """Return the words of a name, without numbers at its end: `DB_PASS_2` ends with `PASS`."""
    return name.upper().rstrip("0123456789").rstrip("_").split("_")


def _is_path(value: str) -> bool:
    try:
        return "/" in value and Path(value).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False


def parse_assignments(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values of a `.env` file."""
    for line in text.splitlines():
        found = ASSIGNMENT.fullmatch(line)
        if found:
            yield found[1], _unquote_value(found[2].strip())


def _unquote_value(text: str) -> str:
    if text[:1] in ("'", '"'):
        end = text.find(text[0], 1)
        return text[1:end] if end > 0 else text[1:]
    return re.split(r"\s+#", text, maxsplit=1)[0].strip()


def find_login_name() -> str:
    """Return the login name of the person at this machine; empty if it is unknown."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""
