"""Both ends of an exchange: the example `accept` of stoa-sasl, and clients from elsewhere."""

import base64
import os
import subprocess
import tempfile

import puresasl.client

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def encode(token):
    return base64.b64encode(token).decode() if token else "-"


def decode(text):
    return b"" if text == "-" else base64.b64decode(text)


class Lines:
    """A process that is told a line and answers one."""

    def __init__(self, command, environment=None):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, **(environment or {})})

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self):
        return self.process.stdout.readline().strip()

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(timeout=30)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Server(Lines):
    """One exchange of the server's end. `tokens` is what it was told and what it answered."""

    def __init__(self, jaas, *options, environment=None):
        with tempfile.NamedTemporaryFile("w", suffix=".conf", delete=False) as file:
            file.write(jaas)
        self.path = file.name
        self.tokens = []
        command = os.environ.get("SASL_ACCEPT", "cargo run -q -p stoa-sasl --example accept --").split()
        super().__init__([*command, self.path, *options], environment)

    def step(self, token):
        """The answer's word, its token, and the id or the reason."""
        self.say(encode(token))
        word, _, rest = self.hear().partition(" ")
        self.tokens.append(token)
        if word == "failed":
            return word, b"", rest
        answer, _, name = rest.partition(" ")
        self.tokens.append(decode(answer))
        return word, decode(answer), name

    def again(self):
        """Begins another exchange with the same server."""
        self.say("")

    def close(self):
        super().close()
        os.unlink(self.path)


class Java(Lines):
    """The JDK's SaslClient."""

    def __init__(self, *arguments, options=(), environment=None):
        super().__init__(["java", *options, os.path.join(HERE, "Client.java"), *arguments], environment)


def with_java(server, *arguments, **more):
    """How an exchange with the JDK ends: the server's last word and what it says; and whether the client is content."""
    with Java(*arguments, **more) as client:
        while True:
            line = client.hear()
            if not line or line == "complete":
                return "client", line, False
            word, token, name = server.step(decode(line))
            if word == "failed":
                return word, name, False
            client.say(encode(token))
            if word == "done":
                return word, name, client.hear() == "complete"


def with_pure_sasl(server, mechanism, host, **options):
    """The same with pure-sasl, as kazoo drives it."""
    client = puresasl.client.SASLClient(host=host, service="zookeeper", mechanism=mechanism, **options)
    challenge, word, name = None, "", ""
    while not client.complete:
        response = client.process(challenge=challenge)
        if client.complete and not response:
            break
        word, challenge, name = server.step(response or b"")
        if word == "failed":
            return word, name, False
    return word, name, client.complete
