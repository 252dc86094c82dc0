#!/usr/bin/env python3
"""A session that asks a server for something once a millisecond, and tells when it had to wait for how long.

Arguments: the port and how many seconds. It prints two lists as JSON: of each request the seconds since 1970 and the
seconds until the answer; and when the core that this program runs on did not run what was to run there, with the
seconds that it took: the system itself has work to do for connections, and what waits meanwhile does not wait for the
server.
"""

import json
import os
import sys
import time

import servers

PAUSE_SECONDS = 0.001
# So often somebody who does nothing else looks whether the core runs him.
LOOK_SECONDS = 0.0005
# A gap that is worth telling of.
GAP_SECONDS = 0.001


def look(end, out):
    """Tells when this core was not to be had, until then."""
    gaps = []
    while (before := time.time()) < end:
        time.sleep(LOOK_SECONDS)
        due, now = before + LOOK_SECONDS, time.time()
        if now - due > GAP_SECONDS:
            gaps.append((due, now - due))
    with open(out, "w", encoding="utf-8") as file:
        json.dump(gaps, file)


def main():
    port, seconds = int(sys.argv[1]), float(sys.argv[2])
    waits = []
    with servers.Session(port) as session:
        end = time.time() + seconds
        reader, writer = os.pipe()
        looker = os.fork()
        if looker == 0:
            os.close(reader)
            look(end, writer)
            os._exit(0)
        os.close(writer)
        while (asked := time.time()) < end:
            session.exists("/")
            waited = time.time() - asked
            waits.append((asked, waited))
            time.sleep(max(0, PAUSE_SECONDS - waited))
        with open(reader, encoding="utf-8") as file:
            gaps = json.load(file)
        os.waitpid(looker, 0)
    print(json.dumps({"waits": waits, "gaps": gaps}))


if __name__ == "__main__":
    main()
