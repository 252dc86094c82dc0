"""A realm with two services and two clients, and the server's and the clients' login configurations for it."""

import os

from exchange import Server, with_java, with_pure_sasl
from kdc import REALM, Kdc

SERVER = """
Server {{
    com.sun.security.auth.module.Krb5LoginModule required
    useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}";
}};
"""

CLIENT = """
Client {{
    com.sun.security.auth.module.Krb5LoginModule required
    useKeyTab=true keyTab="{keytab}" principal="{principal}" useTicketCache=false;
}};
"""

NAME = "zookeeper/localhost"


class World:
    def __init__(self, more=""):
        self.kdc = Kdc(more)
        self.kdc.principal(NAME, "server.keytab")
        self.kdc.principal("other/localhost", "server.keytab")
        self.kdc.principal("bob", "bob.keytab")
        self.kdc.principal("app/host.example", "app.keytab")
        for name in ["bob", "app"]:
            principal = {"bob": "bob", "app": "app/host.example"}[name]
            self.kdc.write(f"{name}.conf", CLIENT.format(keytab=self.kdc.path(f"{name}.keytab"), principal=principal))

    def login(self, keytab="server.keytab", principal=f"{NAME}@{REALM}"):
        """The login configuration of a service."""
        return SERVER.format(keytab=self.kdc.path(keytab), principal=principal)

    def server(self, *options, keytab="server.keytab", principal=f"{NAME}@{REALM}"):
        return Server(self.login(keytab, principal), *options)

    def java(self, server, *mutual, client="bob", service="zookeeper", asked="admin@X"):
        options = [
            f"-Djava.security.krb5.conf={self.kdc.path('krb5.conf')}",
            f"-Djava.security.auth.login.config={self.kdc.path(client + '.conf')}",
            "-Djavax.security.auth.useSubjectCredsOnly=true",
        ]
        return with_java(server, "GSSAPI", service, "localhost", asked, *mutual, options=options)

    def log_in(self):
        """Gets bob the tickets by which clients in this process are him."""
        self.kdc.run("kinit", "-kt", self.kdc.path("bob.keytab"), "bob")
        os.environ.update(
            {key: self.kdc.environment[key] for key in ["KRB5_CONFIG", "KRB5CCNAME"]})

    def pure_sasl(self, server):
        self.log_in()
        return with_pure_sasl(server, "GSSAPI", "localhost")
