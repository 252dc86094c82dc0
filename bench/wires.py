"""Machines of one's own on this one: network namespaces with a router between them, and what each can send limited.

It is a router and no switch, since the kernel keeps no more than a thousand neighbours for all namespaces together by
default: of fifty servers each would have all others, and here each has one.

As root on Linux. Nothing of what is here is seen outside of it.
"""

import json
import os
import subprocess
import sys

ROUTER, CLIENTS = "stoa-router", "stoa-clients"
GATEWAY = "169.254.1.1"
# Of 10.77.0.0/16; clients have the last address.
NETWORK, CLIENTS_HOST = "10.77.{}.{}", "10.77.255.1"
# The largest piece that the kernel hands to an interface at a time.
BURST = "96kb"
INSIDE = "STOA_BENCH_INSIDE"


def host(number):
    return NETWORK.format(number // 250, number % 250 + 1)


def machine(number):
    return f"stoa-{number}"


def inside(namespace):
    """What a command begins with that runs there."""
    return ["nsenter", f"--net=/run/netns/{namespace}"]


def ip(*words):
    return subprocess.run(["ip", *map(str, words)], check=True, stdout=subprocess.PIPE, text=True).stdout


def connect(namespace, address, port):
    """An interface of a namespace, and its end at the router."""
    ip("netns", "add", namespace)
    ip("link", "add", port, "netns", ROUTER, "type", "veth", "peer", "name", "eth0", "netns", namespace)
    ip("-n", ROUTER, "address", "add", f"{GATEWAY}/32", "dev", port)
    ip("-n", ROUTER, "link", "set", port, "up")
    ip("-n", ROUTER, "route", "add", f"{address}/32", "dev", port)
    ip("-n", namespace, "address", "add", f"{address}/32", "dev", "eth0")
    ip("-n", namespace, "link", "set", "eth0", "up")
    ip("-n", namespace, "link", "set", "lo", "up")
    ip("-n", namespace, "route", "add", GATEWAY, "dev", "eth0")
    ip("-n", namespace, "route", "add", "default", "via", GATEWAY, "dev", "eth0")


def within(count):
    """Whether this process is where the clients are. The first one makes `count` machines, runs itself once more there, and
    takes all away in the end."""
    if os.environ.get(INSIDE):
        return True
    made = [ROUTER, CLIENTS, *(machine(number) for number in range(1, count + 1))]
    remove(made)
    try:
        ip("netns", "add", ROUTER)
        subprocess.run([*inside(ROUTER), "sysctl", "-qw", "net.ipv4.ip_forward=1"], check=True)
        connect(CLIENTS, CLIENTS_HOST, "clients")
        for number in range(1, count + 1):
            connect(machine(number), host(number), f"port{number}")
        command = [*inside(CLIENTS), sys.executable, *sys.argv]
        subprocess.run(command, check=True, env={**os.environ, INSIDE: "yes"})
    finally:
        remove(made)
    return False


def remove(namespaces):
    for namespace in namespaces:
        subprocess.run(["ip", "netns", "del", namespace], check=False, stderr=subprocess.DEVNULL)


def limit(number, rate):
    """What a machine sends goes no faster than this (`100mbit`), or as fast as it can where there is none."""
    device = [*inside(machine(number)), "tc", "qdisc"]
    subprocess.run([*device, "del", "dev", "eth0", "root"], check=False, stderr=subprocess.DEVNULL)
    if rate:
        shape = ["tbf", "rate", rate, "burst", BURST, "latency", "1s"]
        subprocess.run([*device, "add", "dev", "eth0", "root", *shape], check=True)


def sent():
    """Bytes and packets that each machine has sent since it was made, by its number."""
    ports = json.loads(ip("-n", ROUTER, "-j", "-s", "link"))
    of = {port["ifname"]: port["stats64"]["rx"] for port in ports}
    of = {name.removeprefix("port"): seen for name, seen in of.items() if name.startswith("port")}
    return {int(number): (seen["bytes"], seen["packets"]) for number, seen in of.items()}
