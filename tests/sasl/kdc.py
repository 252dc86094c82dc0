"""A realm of its own: MIT's KDC on a loopback port, with everything in one folder."""

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).parent.parent / "kazoo"))

from server_process import free_port

REALM = "STOA.TEST"

KRB5_CONF = """
[libdefaults]
    default_realm = {realm}
    dns_lookup_kdc = false
    dns_lookup_realm = false
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
    {more}
[realms]
    {realm} = {{
        kdc = 127.0.0.1:{port}
    }}
"""

KDC_CONF = """
[kdcdefaults]
    kdc_listen = 127.0.0.1:{port}
    kdc_tcp_listen = 127.0.0.1:{port}
[realms]
    {realm} = {{
        database_name = {folder}/principal
        key_stash_file = {folder}/stash
        acl_file = {folder}/acl
        supported_enctypes = aes256-cts-hmac-sha1-96:normal aes128-cts-hmac-sha1-96:normal
        max_life = 10h
    }}
"""


class Kdc:
    def __init__(self, more=""):
        self.folder = tempfile.mkdtemp(prefix="stoa-kdc-")
        port = free_port()
        self.environment = {
            **os.environ,
            "KRB5_CONFIG": self.path("krb5.conf"),
            "KRB5_KDC_PROFILE": self.path("kdc.conf"),
            "KRB5CCNAME": "FILE:" + self.path("ccache"),
            "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin",
        }
        names = {"realm": REALM, "port": port, "folder": self.folder, "more": more}
        self.write("krb5.conf", KRB5_CONF.format(**names))
        self.write("kdc.conf", KDC_CONF.format(**names))
        self.run("kdb5_util", "-r", REALM, "-P", "master", "create", "-s")
        self.process = subprocess.Popen(
            ["krb5kdc", "-n", "-r", REALM], env=self.environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.1)
        raise RuntimeError("the KDC does not listen")

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)

    def run(self, *command):
        done = subprocess.run(
            command, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            raise RuntimeError(f"{command}: {done.stdout}")
        return done.stdout

    def admin(self, query):
        return self.run("kadmin.local", "-r", REALM, "-q", query)

    def principal(self, name, keytab, options=""):
        """Adds a principal with random keys, and puts these into a keytab."""
        self.admin(f"addprinc -randkey {options} {name}")
        self.keys(name, keytab)

    def keys(self, name, keytab, options=""):
        self.admin(f"ktadd -k {self.path(keytab)} {options} {name}")
        return self.path(keytab)

    def close(self):
        self.process.terminate()
        self.process.wait(timeout=10)
        shutil.rmtree(self.folder)
