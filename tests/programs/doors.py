"""An ensemble of three whose doors are locked, and the keys to them.

Its settings are those of a `zoo.cfg`, as whoever comes from ZooKeeper has them. MEMBER_COMMAND is what starts a server,
and its first word the program that makes certificates, too.
"""

import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from kazoo.client import KazooClient

from members import Ensemble

PASSWORD = "a password of stores"
USERS = {"kafka": "a password of kafka", "app": "a password of app", "stranger": "a password of a stranger"}
DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"


class Keys:
    """An authority, and certificates of it for the servers and for clients: each in PEM, and as Java has them."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="stoa-keys-"))
        self._make("--name=localhost")
        self._store("server")
        authority = pkcs12.PKCS12Certificate(self._certificate("authority"), b"authority")
        self.trust = self.folder / "authority.p12"
        self.trust.write_bytes(pkcs12.serialize_java_truststore([authority], self._encryption()))
        self.authority = self.folder / "authority.pem"

    def client(self, name):
        """Makes a certificate whose subject is CN=name."""
        self._make(f"--client={name}")
        for end in (".pem", "-key.pem"):
            (self.folder / f"client{end}").rename(self.folder / f"{name}{end}")
        self._store(name)

    def certificate(self, name):
        return self.folder / f"{name}.pem"

    def key(self, name):
        return self.folder / f"{name}-key.pem"

    def store(self, name):
        return self.folder / f"{name}.p12"

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def _make(self, whom):
        program = shlex.split(os.environ["MEMBER_COMMAND"])[0]
        command = [program, "certificate", whom, "--to", self.folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def _certificate(self, name):
        return x509.load_pem_x509_certificate(self.certificate(name).read_bytes())

    def _store(self, name):
        key = serialization.load_pem_private_key(self.key(name).read_bytes(), None)
        certificate = self._certificate(name)
        store = pkcs12.serialize_key_and_certificates(
            name.encode(), key, certificate, None, self._encryption()
        )
        self.store(name).write_bytes(store)

    def _encryption(self):
        return serialization.BestAvailableEncryption(PASSWORD.encode())


def tls(keys):
    """TLS on the port of clients, beside those in the clear: four-letter words are asked so. But who has not shown a
    certificate is served nothing."""
    settings = f"""\
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
client.portUnification=true
ssl.keyStore.location={keys.store("server")}
ssl.keyStore.password={PASSWORD}
ssl.trustStore.location={keys.trust}
ssl.trustStore.password={PASSWORD}
authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider
enforce.auth.enabled=true
enforce.auth.schemes=x509
"""
    return settings, {}


def passwords(keys):
    """SASL with the passwords of USERS. Who has none is served, as somebody who may do what everybody may. A variable
    names the file with them, as for ZooKeeper a property of Java does."""
    file = keys.folder / "login.conf"
    users = " ".join(f'user_{user}="{password}"' for user, password in USERS.items())
    file.write_text(f"Server {{\n    {DIGEST} required {users};\n}};\n")
    settings = "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"
    return settings, {"STOA_SASL_CONFIG": str(file)}


def login(folder, user, password=None):
    """The file from which a program in Java takes its name and its password."""
    file = folder / f"{user}.conf"
    password = password or USERS[user]
    file.write_text(f'Client {{\n    {DIGEST} required username="{user}" password="{password}";\n}};\n')
    return file


class Guarded(Ensemble):
    """The ensemble, with keys that end with it."""

    def __init__(self, door, more_settings=""):
        self.keys = Keys()
        settings, environment = door(self.keys)
        super().__init__(settings + more_settings)
        self.environment |= environment

    def __exit__(self, *error):
        super().__exit__(*error)
        self.keys.close()

    @property
    def addresses(self):
        """As clients are told them."""
        return ",".join(f"localhost:{member.port}" for member in self.members)

    def logged(self):
        """What all servers have logged."""
        return "\n".join(member.said() for member in self.members)

    def enter(self, certificate=None, user=None):
        """A client that has come in, with a certificate or a password where one is named."""
        proof = {}
        if certificate is not None:
            names = {"certfile": self.keys.certificate(certificate), "keyfile": self.keys.key(certificate)}
            files = {name: str(path) for name, path in (names | {"ca": self.keys.authority}).items()}
            proof = {"use_ssl": True, **files}
        if user is not None:
            proof["sasl_options"] = {"mechanism": "DIGEST-MD5", "username": user, "password": USERS[user]}
        client = KazooClient(self.addresses, **proof)
        self.clients.append(client)
        client.start(30)
        return client
