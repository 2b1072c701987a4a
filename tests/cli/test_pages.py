"""U2: a run as it looks at 60, 80 and 120 columns, from a real program at a real terminal.

`UPDATE_PAGES=1 pytest tests/cli/test_pages.py` writes the pages anew: look at them before you keep
them.
"""

import os
import re
from pathlib import Path

import pytest

from windlass.testing.chat_wire import call_chunks, chat_answer, text_answer, text_chunk
from windlass_shell import WindlassShell

pytestmark = [
    pytest.mark.contract("U2"),
    pytest.mark.realtime,
    pytest.mark.slow,
    pytest.mark.timeout(120),
]
PAGES = Path(__file__).parent / "pages"
REPLY = """\
# What I found

The **build** fails in `parser.py`, because *one* name is ~~wrong~~ misspelt. See
[the guide](https://example.com/guide) and ![a sketch](sketch.png).

- The parser
  - reads a file line by line, and stops at the first line that it cannot read
    1. first deep
    2. second deep
- The writer

| file | lines | what it is for |
|:-----|------:|:---------------|
| `parser.py` | 120 | Reads what people write, in whichever encoding they wrote it |
| `out.py` | 7 | Writes it again |

```python
def read_line(source: TextIO, *, encoding: str = "utf-8", errors: str = "strict") -> str:
    return source.readline()  # until the end
```

> Said in passing.

---
Done.
"""


def steady(page: str) -> str:
    """The page without what differs from run to run."""
    page = re.sub(r"\d+(\.\d)? s", "N s", page)
    return re.sub(r"project-[0-9a-f]{4}-[0-9a-f]{8}", "project-NAME", page)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_run_looks_as_it_should(shell: WindlassShell, width: int) -> None:
    (shell.project / "parser.py").write_text("x = 1\n")
    (shell.project / "red.txt").write_text("\x1b[31mred\x1b[0m\n")
    shell.server.add_answers(
        chat_answer(text_chunk("I will look."), call_chunks("read", '{"path":"parser.py"}')),
        chat_answer(call_chunks("read", '{"path":"/etc/hosts"}')),
        chat_answer(call_chunks("bash", '{"command":"cat red.txt"}')),
        text_answer(REPLY),
    )
    with shell.windlass("run", "-m", "openai-chat:m", "go", width=width, rows=100) as terminal:
        assert terminal.wait_for_exit() == 0
    assert "Traceback" not in terminal.page.text
    # Neither the terminal nor the model is told to colour anything.
    assert shell.server.requests[-1].json["messages"][-1]["content"].startswith("red\n")
    page = steady(terminal.page.text)
    file = PAGES / f"terminal-{width}.txt"
    if os.environ.get("UPDATE_PAGES"):
        file.write_text(f"{page}\n")
    assert max(map(len, page.splitlines())) <= width
    assert page == file.read_text().removesuffix("\n")
