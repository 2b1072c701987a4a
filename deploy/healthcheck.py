"""Exits with 0 if the service in this container lives, with TLS or without.

The certificate is not checked: it names the host that people use, and not this address.
"""

import http.client
import os
import ssl
import sys

ADDRESS = ("127.0.0.1", int(os.environ.get("WINDLASS_HEALTH_PORT", "8420")))
TIMEOUT_S = 2.0


def lives(connection: http.client.HTTPConnection) -> bool:
    """Return whether the service answers on this connection."""
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


unchecked = ssl.create_default_context()
unchecked.check_hostname = False
unchecked.verify_mode = ssl.CERT_NONE
plain = http.client.HTTPConnection(*ADDRESS, timeout=TIMEOUT_S)
secure = http.client.HTTPSConnection(*ADDRESS, timeout=TIMEOUT_S, context=unchecked)
sys.exit(0 if lives(plain) or lives(secure) else 1)
