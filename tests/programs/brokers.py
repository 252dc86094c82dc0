"""Brokers of Kafka as processes of Java. KAFKA_JARS is the folder with its jars."""

import os
import signal
import subprocess

from doors import PASSWORD
from server_process import HOST, free_port

STOP_SECONDS = 30
# Two brokers, three servers and the tests share a machine: little memory, and no time for the second compiler.
JAVA = ["java", "-Xms192m", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
PROPERTIES = """\
broker.id={number}
listeners=PLAINTEXT://{host}:{port}
log.dirs={folder}/log
zookeeper.connect={addresses}/kafka
zookeeper.session.timeout.ms=3000
zookeeper.connection.timeout.ms={patience_ms}
zookeeper.set.acl={acl}
offsets.topic.replication.factor=2
offsets.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
replica.lag.time.max.ms=3000
num.network.threads=2
num.io.threads=2
log.cleaner.enable=false
auto.create.topics.enable=false
"""
NETTY = """\
zookeeper.ssl.client.enable=true
zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty
zookeeper.ssl.truststore.location={trust}
zookeeper.ssl.truststore.password={password}
"""
CERTIFICATE = """\
zookeeper.ssl.keystore.location={store}
zookeeper.ssl.keystore.password={password}
"""


def with_certificate(keys, name):
    """Settings of a broker with TLS and a certificate."""
    return without_certificate(keys) + CERTIFICATE.format(store=keys.store(name), password=PASSWORD)


def without_certificate(keys):
    """The same without one, for which Kafka itself says that ACLs need one."""
    return NETTY.format(trust=keys.trust, password=PASSWORD)


class Broker:
    """A broker that keeps its port and its folder over restarts."""

    def __init__(self, ensemble, number, properties="", login=None, acl=True, patience_ms=30_000):
        self.number, self.port = number, free_port()
        self.folder = ensemble.folder / f"broker-{number}"
        self.folder.mkdir()
        self.output = self.folder / "output"
        self.process, self.starts = None, 0
        self.config = self.folder / "server.properties"
        places = {"host": HOST, "port": self.port, "folder": self.folder, "addresses": ensemble.addresses}
        own = PROPERTIES.format(number=number, acl=str(acl).lower(), patience_ms=patience_ms, **places)
        self.config.write_text(own + properties)
        self.words = []
        if login is not None:
            self.words.append(f"-Djava.security.auth.login.config={login}")

    @property
    def address(self):
        return f"{HOST}:{self.port}"

    def start(self):
        """Starts it and returns at once."""
        self.starts += 1
        log = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=info", "-Dorg.slf4j.simpleLogger.showDateTime=true"]
        jars = ["-cp", os.path.join(os.environ["KAFKA_JARS"], "*")]
        command = [*JAVA, *log, *self.words, *jars, "kafka.Kafka", self.config]
        with open(self.output, "ab") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def is_started(self):
        assert self.process.poll() is None, f"broker {self.number} has ended:\n{self.said()[-4000:]}"
        return self.said().count(f"[KafkaServer id={self.number}] started") == self.starts

    def said(self):
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def kill(self):
        """Ends the broker as a crash does."""
        self._end(signal.SIGKILL)

    def stop(self):
        """Stops it as an operator does."""
        self._end(signal.SIGTERM)

    def _end(self, number):
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(number)
            process.wait(STOP_SECONDS)
