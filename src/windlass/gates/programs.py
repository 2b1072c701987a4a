"""What programs can do besides their own work: run other programs, write files, follow a folder.

Invariant: a star of a rule matches no word that makes a program run or write something else. The
table says which words those are. For programs that take a script (`sed`, `awk`), a script that is
not known to be harmless counts as one that runs programs. A program that is not listed is taken at
its word: a rule that names it allows what it does.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from windlass.gates.globs import HOLE
from windlass.gates.script_words import Hazard, awk_hazards, sed_hazards


@dataclass(frozen=True, slots=True)
class Program:
    """What the words of one program can do."""

    runs: str = ""
    """Options that run another program, or load code or settings that may."""
    writes: str = ""
    """Options that write or delete a file that they name."""
    words: str = ""
    """A pattern of other words that do either, such as `of=…`."""
    is_bundled: bool = False
    """Whether the first word may be options without a dash: `tar cIf`."""
    inputs: int | None = None
    """How many operands are read; those after them are written. None: all are read."""
    script: Callable[[list[str]], list[Hazard]] | None = None
    """What a script among the words does, word by word."""


_AWK = Program(script=awk_hazards)
_SED = Program(script=sed_hazards)
_MAKE = Program(
    runs="-C -E -f -I --directory --eval --file --include-dir --makefile",
    # `make SHELL=./x` runs another program for each line.
    words=r"[A-Za-z_.][\w.]*[:+?!]*=",
)
_CURL_WRITES = (
    "-o -O -D -c -K --output --remote-name --remote-name-all --dump-header --cookie-jar --config "
    "--trace --trace-ascii --stderr --output-dir --libcurl --hsts --alt-svc --etag-save"
)

_VI = Program(
    # In Ex mode, and with a script, commands come from standard input or a file.
    runs="-c -S -u -U -i -s -t -e -E -es -Es -l -ll --cmd --remote-expr --remote-send --listen "
    "--luamod-dev --server --servername",
    writes="-w -W --startuptime",
    words=r"\+",
)
_LINE_EDITOR = Program(words=r"[\s\S]*")
"""It takes its commands from standard input, and one of them runs a shell."""

PROGRAMS: Mapping[str, Program] = {
    "ack": Program(runs="--pager --ackrc"),
    "ag": Program(runs="--pager"),
    "apt": Program(runs="-o -c --option --config-file"),
    "apt-get": Program(runs="-o -c --option --config-file"),
    "ar": Program(is_bundled=True, runs="--plugin", writes="-d -q -r -m"),
    "awk": _AWK,
    "bat": Program(runs="--pager"),
    "bind": Program(runs="-x -f"),
    "cargo": Program(runs="-C -Z --config --manifest-path"),
    "cc": Program(runs="-B -wrapper -fplugin -specs"),
    "compgen": Program(runs="-C -F -W"),
    "complete": Program(runs="-C -F -W"),
    "cpio": Program(runs="--rsh-command", words=r"[^/]+:"),
    "ctags": Program(runs="--options", writes="-o -f"),
    "curl": Program(writes=_CURL_WRITES),
    "dc": Program(runs="-e -f --expression --file", words=r"(?s).*!"),
    "dd": Program(words=r"of="),
    "ed": _LINE_EDITOR,
    "emacs": Program(
        runs="-f -l --eval --execute --funcall --load --script --batch --insert --init-directory"
    ),
    "emacsclient": Program(runs="-a -e -f -s --alternate-editor --eval --server-file"),
    "ex": _LINE_EDITOR,
    "eslint": Program(
        runs="-c -f --config --format --parser --plugin --resolve-plugins-relative-to --rulesdir",
        writes="-o --output-file",
    ),
    "fd": Program(runs="-x -X --exec --exec-batch"),
    "file": Program(writes="-C --compile"),
    "find": Program(
        runs="-exec -execdir -ok -okdir", writes="-delete -fprint -fprint0 -fprintf -fls"
    ),
    "gawk": _AWK,
    "gcc": Program(runs="-B -wrapper -fplugin -specs"),
    "gdb": Program(runs="-x -ex -ix -iex --command --eval-command --init-command"),
    "git": Program(
        runs="-c -C -O -x --config --config-env --exec --exec-path --ext-diff --git-dir --textconv "
        "--work-tree --open-files-in-pager --receive-pack --upload-pack --template --extcmd",
        writes="--output --output-directory",
        # `-o` writes a file in some of its commands; in others, as in `status -uno`, it does not.
        words=r"(config|difftool|filter-branch|foreach|mergetool|run|send-email|instaweb)$|ext::|"
        r"-[0-9lv]*o",
    ),
    "gmake": _MAKE,
    "go": Program(runs="-exec -toolexec -vettool -overlay"),
    "gofmt": Program(writes="-w -cpuprofile"),
    "gpg": Program(writes="-o --output"),
    "gsed": _SED,
    "history": Program(writes="-a -w"),
    "iconv": Program(writes="-o --output"),
    "ip": Program(runs="-b -batch", words=r"exec$"),
    "jest": Program(
        runs="-c --config --globalSetup --globalTeardown --preset --reporters --resolver --runner "
        "--testEnvironment --testRunner --transform",
        writes="--outputFile --coverageDirectory --cacheDirectory",
    ),
    "jobs": Program(runs="-x"),
    "journalctl": Program(
        writes="--cursor-file --rotate --vacuum-size --vacuum-time --vacuum-files"
    ),
    "kubectl": Program(runs="--kubeconfig"),
    "less": Program(runs="-k --lesskey-file --lesskey-src", writes="-o -O --log-file", words=r"\+"),
    "make": _MAKE,
    "man": Program(runs="-H -P -C -X --html --pager --config-file --gxditview --preprocessor"),
    "mapfile": Program(runs="-C"),
    "mawk": _AWK,
    "mypy": Program(
        runs="--config-file --python-executable",
        writes="--cache-dir --junit-xml --any-exprs-report --html-report --txt-report --xml-report",
    ),
    "mysql": Program(runs="-e --execute --pager", writes="--tee"),
    "nawk": _AWK,
    "nc": Program(runs="-c -e"),
    "ncat": Program(runs="-c -e --exec --sh-exec --lua-exec", writes="-o -x --output --hex-dump"),
    "nm": Program(runs="--plugin"),
    "nmap": Program(runs="--script --datadir", writes="-oN -oX -oS -oG -oA"),
    "npm": Program(runs="-C --globalconfig --node-options --prefix --script-shell --userconfig"),
    "objdump": Program(runs="--plugin"),
    "openssl": Program(runs="-engine -provider -provider-path", writes="-out -keyout -writerand"),
    "pnpm": Program(runs="-C --dir --prefix --script-shell"),
    "prettier": Program(runs="--config --plugin", writes="-w --write"),
    "psql": Program(runs="-c -f -v --command --file --set", writes="-o -L --output --log-file"),
    "pylint": Program(runs="--init-hook --load-plugins --rcfile", writes="--output"),
    "pytest": Program(
        runs="-c -o -p --confcutdir --config-file --override-ini --pyargs --rootdir",
        writes="--basetemp --junit-xml --junitxml --log-file --debug",
    ),
    "ranlib": Program(runs="--plugin"),
    "readarray": Program(runs="-C"),
    "rg": Program(runs="--pre --hostname-bin"),
    "rsync": Program(
        runs="-e --rsh --rsync-path --files-from",
        writes="--log-file --write-batch --only-write-batch",
        words=r"--daemon",
    ),
    "ruff": Program(runs="--config", writes="-o --output-file --cache-dir --fix --fix-only"),
    "scp": Program(runs="-S -o -F -D"),
    "sdiff": Program(runs="--diff-program", writes="-o --output"),
    "red": _LINE_EDITOR,
    "sed": _SED,
    "sftp": Program(runs="-S -D -b -o -F"),
    "shuf": Program(writes="-o --output"),
    "socat": Program(words=r"(?i).*(exec|system|shell|open|create|file)"),
    "sort": Program(runs="--compress-program", writes="-o --output"),
    "split": Program(runs="--filter"),
    "sqlite3": Program(
        runs="-cmd -init", words=r"(?s)(.*\n)?\s*\.[a-z]|.*(load_extension|writefile|edit\()"
    ),
    "strip": Program(runs="--plugin", writes="-o"),
    "systemctl": Program(runs="-H --host"),
    "tar": Program(
        runs="-I -F -T --checkpoint-action --files-from --info-script --new-volume-script "
        "--rmt-command --rsh-command --to-command --use-compress-program",
        words=r"[^/]+:",
        is_bundled=True,
    ),
    "tcpdump": Program(runs="-z", writes="-w"),
    "terraform": Program(words=r"-chdir"),
    "tree": Program(writes="-o -R"),
    "tsc": Program(
        runs="-b -p --build --project --plugins", writes="--outDir --outFile --tsBuildInfoFile"
    ),
    "tshark": Program(runs="-X", writes="-w"),
    "uniq": Program(inputs=1),
    **dict.fromkeys(
        (
            "elvis",
            "evim",
            "gview",
            "gvim",
            "gvimdiff",
            "nvi",
            "nview",
            "nvim",
            "nvimdiff",
            "rgview",
        ),
        _VI,
    ),
    **dict.fromkeys(("rgvim", "rview", "rvim", "vi", "view", "vim", "vimdiff", "vimx"), _VI),
    "wget": Program(
        runs="-e --execute --use-askpass --config",
        writes="-O -o -a -P --output-document --output-file --append-output --directory-prefix "
        "--save-cookies --warc-file --hsts-file --rejected-log",
    ),
    "xmllint": Program(runs="--shell", writes="-o --output"),
    "xxd": Program(inputs=1),
    "yarn": Program(runs="--cwd --script-shell --use-yarnrc"),
    "yq": Program(writes="-i -s --inplace --split-exp"),
    "zip": Program(runs="-TT --unzip-command"),
}
"""What is known of programs. Tests hold each entry; an entry can only make rules stricter."""

FOLDER_READERS = frozenset(
    """
    ack bazel bundle bun bunx cargo cmake composer deno direnv docker docker-compose eslint git gh
    gmake go gradle gradlew invoke jest just make meson mise mvn mvnw mypy nox npm npx pdm pip pnpm
    podman poetry pre-commit prettier pytest rake ruff rustc tox tsc uv uvx vagrant terraform yarn
    """.split()  # noqa: SIM905 - a list of words
)
"""Programs that run or obey what they find in the current folder, as git does with its `config`."""

_OPTION_CHARS = len("-x")


def find_hazards(name: str, rest: list[str]) -> list[Hazard]:
    """What each word of a program does besides the work of the program; "" for nothing."""
    program = PROGRAMS.get(name)
    if program is None:
        return [""] * len(rest)
    if program.script is not None:
        return program.script(rest)
    runs = program.runs.split()
    writes = program.writes.split()
    hazards: list[Hazard] = []
    operands = 0
    for at, word in enumerate(rest):
        text = word
        if program.is_bundled and at == 0 and not word.startswith("-"):
            text = f"-{word}"
        if HOLE in text:
            hazards.append("unknown")
        elif _is_option_of(text, runs) or (program.words and re.match(program.words, text)):
            hazards.append("runs")
        elif _is_option_of(text, writes):
            hazards.append("writes")
        else:
            operands += not text.startswith("-")
            is_output = program.inputs is not None and operands > program.inputs
            hazards.append("writes" if is_output else "")
    return hazards


def takes_script(name: str) -> bool:
    """Whether the program runs a script that is among its words."""
    program = PROGRAMS.get(name)
    return program is not None and program.script is not None


def _is_option_of(text: str, options: list[str]) -> bool:
    """Whether a word is one of these options, also abbreviated or with its value appended."""
    given = text.partition("=")[0]
    for option in options:
        if option.startswith("--"):
            if given.startswith("--") and len(given) > len("--") and option.startswith(given):
                return True
        elif given == option or (
            len(option) == _OPTION_CHARS and re.match(rf"-\w*{option[1]}", text)
        ):
            return True
    return False
