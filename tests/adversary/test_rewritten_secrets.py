"""Secrets as common programs write them: dumps in hexadecimal, pages, shells (G8)."""

import html
import shlex
import subprocess

import pytest

from windlass.core.secrets.mask import Mask
from windlass.core.secrets.mask_stream import TextStreamMask, ValueHeads

VALUE = "kq7Zr+9/Lm\"Pz_vT2=xW4hJ8n&Y0c'Qd"
DATA = VALUE.encode()
FORMS = {
    "hex of a dump": DATA.hex(" "),
    "hex of a fingerprint": DATA.hex(":").upper(),
    "bytes of a program": "".join(f"\\x{byte:02x}" for byte in DATA),
    "page by a template": html.escape(VALUE).replace("&#x27;", "&#39;").replace("&quot;", "&#34;"),
    "page with named quotes": html.escape(VALUE).replace("&#x27;", "&apos;"),
    "numbers of letters": "".join(f"&#{ord(letter)};" for letter in VALUE),
    "hex of letters": "".join(f"&#x{ord(letter):x};" for letter in VALUE),
    "word of a shell": shlex.quote(VALUE)[1:-1],
}


@pytest.mark.contract("G8")
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_value_is_known_however_a_program_writes_it(form: str) -> None:
    mask = Mask({"KEY": VALUE}, key_like=False)
    assert mask.mask_text(f"a {form} b") == "a [secret: KEY] b"
    stream = TextStreamMask(mask, ValueHeads(mask))
    text = f"a {form} b"
    shown = "".join(stream.feed(text[at : at + 3]) for at in range(0, len(text), 3)) + stream.end()
    # A stream may have shown the first letter before it could know what it begins.
    assert shown.endswith("[secret: KEY] b")
    assert len(shown) <= len("a [secret: KEY] b") + 1


@pytest.mark.slow
@pytest.mark.contract("G8")
def test_a_value_is_known_as_bash_quotes_it() -> None:
    command = ["bash", "-c", 'printf %q "$1"', "x", VALUE]
    written = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert VALUE not in written
    assert Mask({"KEY": VALUE}, key_like=False).mask_text(written) == "[secret: KEY]"
