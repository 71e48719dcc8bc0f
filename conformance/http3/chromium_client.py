"""Opens a page in headless Chromium over HTTP/3, for conformance/http3-clients. Prints a line for each case."""

import base64
import hashlib
import os
import subprocess
import sys
import tempfile

PROGRAM = sys.argv[1]
PORT = int(sys.argv[2])
PATIENCE = 120
ORIGIN = f"example.test:{PORT}"


def key_digest():
    """Returns the digest of the daemon's key, by which Chromium trusts its certificate."""
    command = ["openssl", "x509", "-in", os.environ["CERTIFICATE"], "-pubkey", "-noout"]
    pem = subprocess.run(command, check=True, capture_output=True).stdout
    der = subprocess.run(["openssl", "pkey", "-pubin", "-outform", "der"], input=pem, check=True, capture_output=True)
    return base64.b64encode(hashlib.sha256(der.stdout).digest()).decode()


def document(path):
    """Returns a page as it is after its script has run."""
    with tempfile.TemporaryDirectory() as profile:
        command = [
            PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", "--disable-background-networking", "--disable-component-update",
            f"--user-data-dir={profile}", "--enable-quic", f"--origin-to-force-quic-on={ORIGIN}",
            "--host-resolver-rules=MAP example.test 127.0.0.1",
            f"--ignore-certificate-errors-spki-list={key_digest()}",
            "--virtual-time-budget=20000", "--dump-dom", f"https://{ORIGIN}{path}",
        ]
        run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    return run.stdout + ("" if run.returncode == 0 else run.stderr[-2000:])


def a_page_over_http3():
    page = document("/page")
    # The page has the protocol of its own request, and its script adds what it has fetched.
    assert "HTTP/3.0" in page and "100000 bytes" in page and "posted abc" in page, page


for case in (a_page_over_http3,):
    try:
        case()
        print("ok", case.__name__)
    except Exception as error:
        print("FAIL", case.__name__, repr(error))
