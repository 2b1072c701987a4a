"""Webhooks are signed as the Standard Webhooks specification says."""

import base64

import pytest

from windlass.core.errors import ConfigError
from windlass.server.webhooks.signing import (
    check_secret,
    make_secret,
    sign_message,
    verify_webhook,
)

pytestmark = pytest.mark.contract("A7")
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = b'{"test": 2432232314}'
AT = 1614265330
HEADERS = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": str(AT),
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}


def test_the_signature_is_that_of_the_specification() -> None:
    """Its own example: every library of the specification agrees with it."""
    assert sign_message(SECRET, HEADERS["webhook-id"], AT, BODY) == HEADERS["webhook-signature"]
    assert verify_webhook(SECRET, HEADERS, BODY, AT + 10.0) == HEADERS["webhook-id"]


def test_one_of_several_signatures_is_enough() -> None:
    """While a secret is replaced, a message has two."""
    both = {**HEADERS, "webhook-signature": f"v1,AAAA {HEADERS['webhook-signature']}"}
    assert verify_webhook(SECRET, both, BODY, float(AT))


@pytest.mark.parametrize(
    ("change", "body", "now"),
    [
        ({}, b'{"test": 1}', AT),
        ({"webhook-id": "msg_other"}, BODY, AT),
        ({"webhook-timestamp": str(AT + 1)}, BODY, AT),
        ({"webhook-timestamp": "soon"}, BODY, AT),
        ({"webhook-timestamp": "9" * 5_000}, BODY, AT),
        ({"webhook-signature": ""}, BODY, AT),
        ({"webhook-signature": "v1,"}, BODY, AT),
        ({}, BODY, AT + 301),
        ({}, BODY, AT - 301),
    ],
)
def test_what_is_not_genuine_is_refused(change: dict[str, str], body: bytes, now: float) -> None:
    with pytest.raises(ValueError, match=r"signed|signature|old"):
        verify_webhook(SECRET, {**HEADERS, **change}, body, now)
    other = f"whsec_{base64.b64encode(b'x' * 32).decode()}"
    with pytest.raises(ValueError, match="signature"):
        verify_webhook(other, HEADERS, BODY, float(AT))


def test_secrets_are_long_and_new() -> None:
    assert check_secret(make_secret())
    assert make_secret() != make_secret()
    for wrong in ("whsec_c2hvcnQ=", "whsec_not base64", "", f"whsec_{'A' * 400}"):
        with pytest.raises(ConfigError, match="secret of a webhook"):
            check_secret(wrong)
