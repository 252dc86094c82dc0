"""Kafka, which keeps its brokers and topics in ZooKeeper, with an ensemble whose doors are locked."""

import contextlib
import json

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kazoo.exceptions import NoAuthError
from kazoo.security import make_acl

from brokers import CERTIFICATE, Broker, with_certificate, without_certificate
from doors import PASSWORD, Guarded, Keys, login, passwords, tls
from server_process import eventually

TOPIC = "letters"
STATE = f"/kafka/brokers/topics/{TOPIC}/partitions/0/state"


class Cluster:
    """Two brokers and a topic that is on both."""

    def __init__(self, zk, brokers):
        self.zk, self.brokers = zk, brokers
        self.written = []

    def start(self):
        for broker in self.brokers:
            broker.start()
        for broker in self.brokers:
            eventually(f"broker {broker.number} starts", broker.is_started)
        admin = KafkaAdminClient(bootstrap_servers=self.addresses)
        admin.create_topics([NewTopic(TOPIC, 1, 2)])
        admin.close()
        self.wait_in_sync()

    @property
    def addresses(self):
        return [broker.address for broker in self.brokers]

    def state(self):
        """Who leads the topic, and who is in sync, as the brokers have written it."""
        found = self.zk.exists(STATE) and self.zk.get(STATE)[0]
        state = json.loads(found or '{"leader": -1, "isr": []}')
        return state["leader"], sorted(state["isr"])

    def wait_in_sync(self):
        numbers = sorted(broker.number for broker in self.brokers)
        eventually("both brokers are in sync", lambda: self.state()[1] == numbers)

    def write(self, count=50):
        """Messages that all who are in sync have."""
        producer = KafkaProducer(bootstrap_servers=self.addresses, acks="all", retries=20)
        for _ in range(count):
            text = f"letter {len(self.written)}"
            producer.send(TOPIC, text.encode()).get(30)
            self.written.append(text)
        producer.close()

    def read(self):
        """All of them, from the start."""
        consumer = KafkaConsumer(bootstrap_servers=self.addresses, auto_offset_reset="earliest", group_id=None)
        consumer.assign([TopicPartition(TOPIC, 0)])
        texts = []

        def all_are_read():
            for records in consumer.poll(500).values():
                texts.extend(record.value.decode() for record in records)
            return len(texts) >= len(self.written)

        eventually("all messages are read", all_are_read)
        consumer.close()
        assert texts == self.written

    def read_in_group(self):
        """The same as a member of a group, whose offsets the brokers keep in a topic of their own."""
        settings = {"group_id": "readers", "auto_offset_reset": "earliest", "bootstrap_servers": self.addresses}
        consumer = KafkaConsumer(TOPIC, **settings)
        texts = []
        eventually("the group reads", lambda: texts.extend(consumer.poll(500)) or texts)
        consumer.commit()
        consumer.close()

    def sessions(self):
        """Those of the brokers with the ensemble."""
        paths = [f"/kafka/brokers/ids/{broker.number}" for broker in self.brokers]
        return [self.zk.exists(path).ephemeralOwner for path in paths]

    def leader(self):
        number, _ = self.state()
        return next(broker for broker in self.brokers if broker.number == number)

    def lose_the_leader(self):
        """The leader crashes; the other one leads, and goes on; the first one comes back."""
        first = self.leader()
        other = next(broker for broker in self.brokers if broker is not first)
        first.kill()
        eventually("the other one leads", lambda: self.state() == (other.number, [other.number]))
        self.write()
        self.read()
        first.start()
        eventually(f"broker {first.number} is back", first.is_started)
        self.wait_in_sync()
        self.write()
        self.read()


@contextlib.contextmanager
def cluster(zk, brokers):
    """It ends with the test, with what the brokers said if that failed."""
    cluster = Cluster(zk, brokers)
    try:
        cluster.start()
        yield cluster
    except BaseException:
        for broker in brokers:
            print(f"broker {broker.number}:\n{broker.said()[-20_000:]}")
        raise
    finally:
        for broker in brokers:
            broker.kill()


def lose_a_server(ensemble, kafka):
    """The server that leads the ensemble crashes and comes back. The brokers keep their sessions, and what they have
    to write there is written: a broker is lost meanwhile."""
    sessions = kafka.sessions()
    leader = ensemble.leader
    leader.kill()
    kafka.write()
    kafka.read()
    assert kafka.sessions() == sessions
    kafka.lose_the_leader()
    ensemble.start(leader)
    ensemble.wait_in_quorum(ensemble.members)
    kafka.write()
    kafka.read()


def assert_only_for(zk, owner, stranger):
    """Brokers have written that what they made is theirs alone, and it is."""
    for path in ("/kafka/brokers", "/kafka/brokers/ids", f"/kafka/brokers/topics/{TOPIC}", "/kafka/controller"):
        acls, _ = zk.get_acls(path)
        assert owner in acls, f"{path}: {acls}"
        everybody = [acl for acl in acls if acl != owner]
        assert everybody in ([], [make_acl("world", "anyone", read=True)]), f"{path}: {acls}"
        with pytest.raises(NoAuthError):
            stranger.set_acls(path, [make_acl("world", "anyone", all=True)])
    for path in (STATE, "/kafka/brokers/ids/1", "/kafka/controller"):
        with pytest.raises(NoAuthError):
            stranger.delete(path)
    with pytest.raises(NoAuthError):
        stranger.create("/kafka/brokers/ids/3", b"{}")
    with pytest.raises(NoAuthError):
        # What it may not even read: passwords of users.
        stranger.get("/kafka/config/users")


def test_brokers_with_certificates():
    with Guarded(tls) as ensemble:
        keys = ensemble.keys
        keys.client("kafka")
        keys.client("stranger")
        brokers = [Broker(ensemble, number, with_certificate(keys, "kafka")) for number in (1, 2)]
        with cluster(ensemble.enter("kafka"), brokers) as kafka:
            kafka.write()
            kafka.read()
            assert_only_for(
                kafka.zk, make_acl("x509", "CN=kafka", all=True), ensemble.enter("stranger")
            )
            assert_turned_away(ensemble)
            kafka.lose_the_leader()


def assert_turned_away(ensemble):
    """A broker without a certificate and one with that of another authority do not come in, and the servers say why."""
    others = Keys()
    others.client("kafka")
    own = without_certificate(ensemble.keys)
    foreign = own + CERTIFICATE.format(store=others.store("kafka"), password=PASSWORD)
    strangers = [
        # Kafka itself would not start with ACLs and nothing to prove who it is.
        Broker(ensemble, 3, own, acl=False, patience_ms=3000),
        Broker(ensemble, 4, foreign, patience_ms=3000),
    ]
    try:
        for broker in strangers:
            broker.start()
        for broker in strangers:
            eventually(f"broker {broker.number} gives up", lambda: broker.process.poll() is not None)
            assert broker.process.returncode == 1
            assert "Timed out waiting for connection" in broker.said(), broker.said()[-4000:]
    finally:
        for broker in strangers:
            broker.kill()
        others.close()
    for reason in ("it has shown no certificate, and one is needed", "the signature on its certificate is wrong"):
        assert f"its TLS handshake failed: {reason}" in ensemble.logged(), reason


@pytest.mark.long
def test_brokers_with_passwords():
    with Guarded(passwords) as ensemble:
        file = login(ensemble.folder, "kafka")
        brokers = [Broker(ensemble, number, login=file) for number in (1, 2)]
        with cluster(ensemble.enter(user="kafka"), brokers) as kafka:
            kafka.write()
            kafka.read()
            kafka.read_in_group()
            owner = make_acl("sasl", "kafka", all=True)
            assert_only_for(kafka.zk, owner, ensemble.enter(user="stranger"))
            assert_only_for(kafka.zk, owner, ensemble.enter())
            assert_fails_to_log_in(ensemble)
            kafka.lose_the_leader()
            lose_a_server(ensemble, kafka)


def assert_fails_to_log_in(ensemble):
    broker = Broker(ensemble, 3, login=login(ensemble.folder, "nobody", "a password"), patience_ms=3000)
    broker.start()
    try:
        eventually("a broker with a wrong password gives up", lambda: broker.process.poll() is not None)
        assert broker.process.returncode == 1
    finally:
        broker.kill()
    assert 'SASL failed: there is no user "nobody"' in ensemble.logged()
