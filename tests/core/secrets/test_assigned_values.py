"""Secrets by the names that texts give them, in a text and in a stream (G8)."""

import random

import pytest

from windlass.core.secrets.mask import Mask
from windlass.core.secrets.mask_pieces import TextStreamMask, ValueHeads

pytestmark = pytest.mark.contract("G8")

VALUE = "k7Zq9" + "wXv2Lp8Rt4"  # Put together here, so that no scanner takes it for a leak.
SECRET = [
    f"aws_secret_access_key = {VALUE}/+aB3",
    f"password={VALUE}",
    f"PGPASSWORD='{VALUE}' psql",
    f'{{"password": "{VALUE}", "user": "ann"}}',
    f'"{{\\"password\\": \\"{VALUE}\\"}}"',
    f"api_key: {VALUE}",
    f"apiKey: '{VALUE}',",
    f"X_SECRET_TOKEN={VALUE}",
    f"export GITHUB_TOKEN={VALUE}; make",
    f"client_secret => {VALUE}",
    f"Authorization token: {VALUE}.",
    f"DB_PASSWD={VALUE}!",
    "password: 'summer" + "2031'",
]
ORDINARY = [
    "password=password, token: str, api_key: str | None = None, secret = get_secret2(name)",
    "token=self.tokens[0]; token = token_v2; secret=config.stage2.secret; password=hash1(x)",
    "max_tokens=4096 tokens: 123456789012 and a token bucket; a secret: nobody knows it",
    '{"type": "object", "properties": {"password": {"type": "string", "minLength": 12}}}',
    "password=$DB_PASSWORD1 token=${{ secrets.TOKEN_2 }} api_key=%API_KEY_1% secret=<your key 1>",
    "password=/run/secrets/db_password_1 token: ./tokens/file1.txt secret: ~/secret1.key",
    "token: python3.11 and secret: sha256, api_key = openai2031",
    "password = 'testpass123x'  # an example",
    'token="changeme123456"',
    "nextToken=a1b2c3d4e5f6g7h8 page_token: a1b2c3d4e5f6g7h8 NextToken: a1b2c3d4e5f6g7h8",
    "the password: at least 12 characters, the token: 8h",
]


def stream_text(mask: Mask, text: str, seed: int) -> str:
    stream = TextStreamMask(mask, ValueHeads(mask))
    rolls = random.Random(seed)
    shown: list[str] = []
    while text:
        at = rolls.randint(1, 9)
        shown.append(stream.feed(text[:at]))
        text = text[at:]
    return "".join([*shown, stream.end()])


@pytest.mark.parametrize("text", SECRET)
def test_what_a_secret_name_is_set_to_is_masked(text: str) -> None:
    """G8: the name stays visible, and the value goes, also in a stream however it is cut."""
    masked = Mask().mask_text(f"before {text} after")
    assert "[secret]" in masked
    assert VALUE not in masked
    assert "2031" not in masked
    assert masked.startswith("before ")
    assert masked.endswith(" after")
    for seed in range(12):
        assert stream_text(Mask(), f"before {text} after", seed) == masked


@pytest.mark.parametrize("text", ORDINARY)
def test_code_paths_samples_and_pages_are_left_alone(text: str) -> None:
    assert Mask().mask_text(text) == text
    for seed in range(12):
        assert stream_text(Mask(), text, seed) == text


def test_a_known_value_is_found_in_one_case_and_with_entities() -> None:
    """G8: as hosts and headers write it, and as pages do that replace a slash."""
    value = "aB3/dE" + "f6-hI9/x"
    mask = Mask([("KEY", value)])
    for written in (
        value.upper(),
        value.lower(),
        value.replace("/", "&#47;"),
        value.replace("/", "&#x2F;"),
        value.replace("/", "&#47;").replace("-", "&#45;"),
    ):
        assert mask.mask_text(f"<{written}>") == "<[secret: KEY]>"
