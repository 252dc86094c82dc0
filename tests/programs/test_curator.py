"""Processes with Curator's recipes, with an ensemble whose doors are locked.

CURATOR_JARS is the folder with the jars.
"""

import os
import pathlib
import subprocess

import pytest
from kazoo.exceptions import NoAuthError
from kazoo.security import make_acl

from doors import PASSWORD, Guarded, login, passwords, tls
from server_process import eventually
from kdc import REALM, Kdc

PROGRAM = pathlib.Path(__file__).with_name("Recipes.java")
# They share a machine with three servers.
JAVA = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
NAMES = ("one", "two", "three")
ROUNDS = 60
# ZooKeeper's client has no DIGEST-MD5 otherwise.
DIGEST_ALLOWED = {"zookeeper.fips-mode": "false"}


def java_settings(properties):
    return [f"-D{name}={value}" for name, value in properties.items()]


def certificate_settings(keys, name):
    """As ZooKeeper's client takes a certificate, or none."""
    stores = {"trustStore": keys.trust}
    if name is not None:
        stores["keyStore"] = keys.store(name)
    places = {f"zookeeper.ssl.{store}.location": path for store, path in stores.items()}
    secrets = {f"zookeeper.ssl.{store}.password": PASSWORD for store in stores}
    socket = "org.apache.zookeeper.ClientCnxnSocketNetty"
    return java_settings(
        {"zookeeper.client.secure": "true", "zookeeper.clientCnxnSocket": socket, **places, **secrets}
    )


class Process:
    """One of those that run the recipes."""

    def __init__(self, ensemble, name, settings, number):
        self.name = name
        self.output = ensemble.folder / f"{name}.out"
        jars = os.path.join(os.environ["CURATOR_JARS"], "*")
        words = [ensemble.addresses, name, number, str(ROUNDS), str(len(NAMES) - 1)]
        command = [*JAVA, QUIET, *settings, "-cp", jars, PROGRAM, *words]
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def said(self):
        return self.output.read_text(errors="replace")

    def has_said(self, word):
        ended_well = self.process.poll() in (None, 0)
        assert ended_well, f"{self.name} has ended with {self.process.returncode}:\n{self.said()[-8000:]}"
        return word in self.said().splitlines()

    def kill(self):
        self.process.kill()
        self.process.wait()


def run_recipes(ensemble, settings):
    """Three processes count and lead in turns, while the server that leads the ensemble crashes."""
    number = ensemble.folder / "number"
    number.write_text("0")
    processes = [Process(ensemble, name, settings, number) for name in NAMES]
    try:
        for process in processes:
            eventually(f"{process.name} comes in", lambda: process.has_said("came"))
        eventually("they count", lambda: int(number.read_text() or 0) > 5)
        leader = ensemble.leader
        leader.kill()
        for process in processes:
            eventually(f"{process.name} has led", lambda: process.has_said("done"), 90)
        assert int(number.read_text()) == len(NAMES) * ROUNDS
        ensemble.start(leader)
        ensemble.wait_in_quorum(ensemble.members)
    except BaseException:
        for process in processes:
            print(f"{process.name}:\n{process.said()[-8000:]}")
        raise
    finally:
        for process in processes:
            process.kill()


def assert_only_for(scheme, name, owner, stranger):
    """What Curator made is for who came in with that identity, down to the znode for the lock."""
    own = [make_acl(scheme, name, all=True)]
    for path in ("/recipes", "/recipes/there", "/recipes/mutex", "/recipes/latch", "/recipes/there-was-one"):
        acls, _ = owner.get_acls(path)
        assert acls == own, path
        with pytest.raises(NoAuthError):
            stranger.get(path)
    with pytest.raises(NoAuthError):
        stranger.create("/recipes/there/four")
    with pytest.raises(NoAuthError):
        stranger.delete("/recipes/there-was-one")


def test_certificates():
    with Guarded(tls) as ensemble:
        ensemble.keys.client("app")
        ensemble.keys.client("stranger")
        run_recipes(ensemble, certificate_settings(ensemble.keys, "app"))
        assert_only_for("x509", "CN=app", ensemble.enter("app"), ensemble.enter("stranger"))


@pytest.mark.long
def test_passwords():
    with Guarded(passwords) as ensemble:
        file = login(ensemble.folder, "app")
        run_recipes(ensemble, java_settings({"java.security.auth.login.config": file, **DIGEST_ALLOWED}))
        assert_only_for("sasl", "app", ensemble.enter(user="app"), ensemble.enter(user="stranger"))
        assert_only_for("sasl", "app", ensemble.enter(user="app"), ensemble.enter())


@pytest.mark.long
def test_kerberos():
    kdc = Kdc()
    try:
        service = f"zookeeper/localhost@{REALM}"
        kdc.principal(service, "server.keytab")
        kdc.principal("app", "app.keytab")
        own = kerberos(kdc.path("app.keytab"), f"app@{REALM}")
        kdc.write("client.conf", f"Client {{\n    {own};\n}};\n")

        def door(keys):
            # Both ways at the same time: without the realm, who comes by a ticket is who comes by the password.
            settings, environment = passwords(keys)
            users = pathlib.Path(environment["STOA_SASL_CONFIG"])
            module = kerberos(kdc.path("server.keytab"), service)
            users.write_text(users.read_text().replace("};", f"    {module};\n}};"))
            return f"{settings}kerberos.removeRealmFromPrincipal=true\n", environment

        with Guarded(door) as ensemble:
            run_recipes(ensemble, java_settings({
                "java.security.krb5.conf": kdc.path("krb5.conf"),
                "java.security.auth.login.config": kdc.path("client.conf"),
                "zookeeper.sasl.client.canonicalize.hostname": "false",
            }))
            assert_only_for("sasl", "app", ensemble.enter(user="app"), ensemble.enter(user="stranger"))
    finally:
        kdc.close()


def kerberos(keytab, principal):
    """What a login configuration has for a keytab."""
    options = f'useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}"'
    return f"com.sun.security.auth.module.Krb5LoginModule required {options}"
