"""Authorities that give out certificates, good ones and bad ones, by the `openssl` command."""

import base64
import pathlib
import subprocess

# `openssl ca` takes dates as they are, which `openssl x509` does not.
PAST, FUTURE = "20200101000000Z", "20991231235959Z"
BEGIN = "20240101000000Z"

CONFIG = """
[ca]
default_ca = own
[own]
database = {folder}/index.txt
new_certs_dir = {folder}
serial = {folder}/serial
crlnumber = {folder}/crlnumber
crl_extensions = list
default_md = sha256
default_crl_days = 3650
policy = any
unique_subject = no
[any]
commonName = supplied
[list]
authorityKeyIdentifier = keyid
[req]
distinguished_name = none
prompt = no
[none]
"""

AUTHORITY = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\nsubjectKeyIdentifier=hash\n"
CLIENT = (
    "basicConstraints=critical,CA:FALSE\nkeyUsage=digitalSignature\nextendedKeyUsage=clientAuth\n"
    "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
)
SERVER = CLIENT.replace("clientAuth", "serverAuth") + "subjectAltName=DNS:localhost,IP:127.0.0.1\n"


def openssl(*words, stdin=None):
    done = subprocess.run(["openssl", *map(str, words)], input=stdin, capture_output=True)
    assert done.returncode == 0, f"openssl {words}: {done.stderr.decode()}"
    return done.stdout


def make_key(path, kind="ec"):
    """A private key: `ec`, or `rsa:BITS`."""
    algorithm, _, bits = kind.partition(":")
    how = f"rsa_keygen_bits:{bits}" if algorithm == "rsa" else "ec_paramgen_curve:P-256"
    openssl("genpkey", "-algorithm", algorithm.upper(), "-pkeyopt", how, "-out", path)


class Holder:
    """Whoever has a certificate and its key."""

    def __init__(self, folder, name):
        self.name = name
        self.certificate = pathlib.Path(folder) / f"{name}.pem"
        self.key = pathlib.Path(folder) / f"{name}-key.pem"
        # What is shown besides, a file in PEM.
        self.chain = None

    @property
    def options(self):
        """As `openssl s_client` takes them."""
        options = ["-cert", str(self.certificate), "-key", str(self.key)]
        return options + (["-cert_chain", str(self.chain)] if self.chain else [])


class Authority(Holder):
    """One that signs. Without `by` it has signed itself."""

    def __init__(self, folder, name, by=None, key="ec", extensions=AUTHORITY, subject=None):
        folder = pathlib.Path(folder) / name
        folder.mkdir()
        super().__init__(folder, name)
        self.folder, self.by = folder, by
        self.config = folder / "config"
        self.config.write_text(CONFIG.format(folder=folder))
        (folder / "index.txt").touch()
        for counter in ("serial", "crlnumber"):
            (folder / counter).write_text("1000\n")
        make_key(self.key, key)
        (by or self).sign(self, extensions, subject=subject)

    def sign(self, holder, extensions, digest="sha256", begin=BEGIN, end=FUTURE, subject=None):
        """Gives a certificate to whoever has a key. One that signs itself has no certificate yet."""
        request, more = self.folder / "request", self.folder / "extensions"
        more.write_text(extensions)
        subject = subject or f"/CN={holder.name}"
        openssl("req", "-new", "-config", self.config, "-key", holder.key, "-subj", subject, "-out", request)
        own = ["-selfsign"] if holder is self else ["-cert", self.certificate]
        openssl(
            "ca", "-batch", "-notext", "-config", self.config, "-keyfile", self.key, *own, "-md", digest,
            "-startdate", begin, "-enddate", end, "-extfile", more, "-in", request, "-out", holder.certificate,
        )

    def give(self, name, extensions=CLIENT, key="ec", **how):
        """Somebody new with a certificate of this authority, and with those that lead from it to the trusted one."""
        holder = Holder(self.folder, name)
        make_key(holder.key, key)
        self.sign(holder, extensions, **how)
        above, signer = [], self
        while signer.by:
            above.append(signer.certificate.read_text())
            signer = signer.by
        if above:
            holder.chain = self.folder / f"{name}-chain.pem"
            holder.chain.write_text("".join(above))
        return holder

    def revoke(self, holder):
        openssl("ca", "-batch", "-config", self.config, "-keyfile", self.key, "-cert", self.certificate,
                "-revoke", holder.certificate)

    def revoked(self, *times):
        """The list of whom it has revoked, in PEM. `times` are those of the list."""
        return openssl("ca", "-gencrl", "-config", self.config, "-keyfile", self.key, "-cert", self.certificate,
                       *times).decode()


def self_signed(folder, name, extensions=CLIENT):
    """Who has signed for itself, and is no authority."""
    return Authority(folder, name, extensions=extensions.replace("authorityKeyIdentifier=keyid\n", ""))


def changed(folder, name, holder, change):
    """The same holder with a certificate whose bytes are changed."""
    other = Holder(folder, name)
    der = bytearray(openssl("x509", "-in", holder.certificate, "-outform", "DER"))
    change(der)
    lines = base64.encodebytes(bytes(der)).decode()
    other.certificate.write_text(f"-----BEGIN CERTIFICATE-----\n{lines}-----END CERTIFICATE-----\n")
    other.key = holder.key
    other.chain = holder.chain
    return other


def with_key_of(folder, name, holder, other):
    """Who shows a holder's certificate and has the key of another one. No tool sends that, as the public key that
    stands in the file of the private one gives it away: so it stands beside that of the holder."""
    impostor = Holder(folder, name)
    impostor.certificate = holder.certificate
    sec1 = [bytearray(openssl("ec", "-in", whose.key, "-outform", "DER")) for whose in (holder, other)]
    # SEQUENCE, version 1, and an octet string of 32 bytes (RFC 5915).
    secret = slice(7, 39)
    assert sec1[0][:7] == sec1[1][:7] == bytes.fromhex("30770201010420"), sec1
    sec1[0][secret] = sec1[1][secret]
    lines = base64.encodebytes(bytes(sec1[0])).decode()
    impostor.key.write_text(f"-----BEGIN EC PRIVATE KEY-----\n{lines}-----END EC PRIVATE KEY-----\n")
    return impostor
