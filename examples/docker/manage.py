"""What the containers of compose.yaml do beside Flower's own programs: keys, register and run."""

import argparse
import datetime
import ipaddress
import json
import re
import subprocess
import sys
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

KEYS, CONNECTION, DAYS = Path("/keys"), "compose", 365
KNOWN = "Public key already in use"
STARTED = re.compile(r"Successfully started run (\d+)")


def make_keys(folder, nodes):
    """Write an authority's certificate, the SuperLink's certificate and key, a key for each node.

    The authority's own key is never written: it signs once. What is there stays as it is.
    """
    done = folder / "public" / "authority.pem"
    if done.exists():
        print("the keys are there")
        return
    for node in range(nodes):
        key = ec.generate_private_key(ec.SECP384R1())
        write_secret(folder / f"node-{node}" / "key", key, serialization.PrivateFormat.OpenSSH)
        form = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        (folder / "public" / f"node-{node}.pub").write_bytes(key.public_key().public_bytes(*form))
    signer, key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    write_secret(folder / "superlink" / "key.pem", key, serialization.PrivateFormat.PKCS8)
    authority = certify(signer, signer, name="rfa example authority", is_authority=True)
    certificate = certify(key, signer, name="superlink", issuer=authority.subject)
    (folder / "public" / "superlink.pem").write_bytes(pem(certificate))
    done.write_bytes(pem(authority))  # the last one: it says that all others are there
    print(f"made keys for a SuperLink and {nodes} SuperNodes")


def certify(key, signer, *, name, issuer=None, is_authority=False):
    """A certificate for a key: of the authority itself, or of the SuperLink."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    public, signing = key.public_key(), signer.public_key()
    builder = (
        x509.CertificateBuilder(issuer or subject, subject, public, x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing), critical=False)
    )
    other = "content_commitment key_encipherment data_encipherment key_agreement encipher_only"
    usages = dict.fromkeys([*other.split(), "decipher_only"], False)
    usages |= {"digital_signature": not is_authority, "crl_sign": is_authority}
    usage = x509.KeyUsage(**usages, key_cert_sign=is_authority)
    builder = builder.add_extension(usage, critical=True)
    if not is_authority:
        loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        names = [x509.DNSName("superlink"), x509.DNSName("localhost"), loopback]
        server = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(server, critical=False)
    return builder.sign(signer, hashes.SHA384())


def pem(certificate):
    """A certificate as a file has it."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def write_secret(path, key, form):
    """Write a private key that only its owner may read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    nothing = serialization.NoEncryption()
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, nothing))


def register(folder, nodes):
    """Tell the SuperLink the public keys of the SuperNodes; one that it knows is fine."""
    for node in range(nodes):
        public = folder / "public" / f"node-{node}.pub"
        code, text = flwr("supernode", "register", str(public), CONNECTION)
        if code and KNOWN not in text:
            sys.exit(f"node-{node} could not be registered")


def run(app, options):
    """Start a run and show its log; the exit code is 1 unless it completed."""
    code, text = flwr("run", app, CONNECTION, "--stream", *options)
    if code or not (started := STARTED.search(text)):
        sys.exit("the run could not be started")
    code, text = flwr("list", CONNECTION, "--run-id", started[1], "--format", "json")
    status = json.loads(text[text.index("{") :])["runs"][0]["status"]
    print(f"run {started[1]}: {status}")
    sys.exit(status != "finished:completed")


def flwr(*arguments):
    """The exit code of a `flwr` command, and what it says while it says it."""
    command = subprocess.Popen(  # noqa: S603
        ["flwr", *arguments],  # noqa: S607 the image's own
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said = []
    for line in command.stdout:
        print(line, end="", flush=True)
        said.append(line)
    return command.wait(), "".join(said)


def main():
    """Do one of the three."""
    parser = argparse.ArgumentParser(description=__doc__)
    tasks = parser.add_subparsers(dest="task", required=True)
    for name in ("keys", "register"):
        task = tasks.add_parser(name)
        task.add_argument("--nodes", type=int, required=True)
        task.add_argument("--folder", type=Path, default=KEYS)
    tasks.add_parser("run").add_argument("app")
    given, options = parser.parse_known_args()
    if given.task == "keys":
        make_keys(given.folder, given.nodes)
    elif given.task == "register":
        register(given.folder, given.nodes)
    else:
        run(given.app, options)


if __name__ == "__main__":
    main()
