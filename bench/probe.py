#!/usr/bin/env python3
"""A session that asks a server for something once a millisecond, and tells when it had to wait for how long.

Arguments: the port and how many seconds. It prints pairs as JSON: seconds since 1970, seconds until the answer.
"""

import json
import sys
import time

import servers

PAUSE_SECONDS = 0.001


def main():
    port, seconds = int(sys.argv[1]), float(sys.argv[2])
    waits = []
    with servers.Session(port) as session:
        end = time.time() + seconds
        while (asked := time.time()) < end:
            session.exists("/")
            waited = time.time() - asked
            waits.append((asked, waited))
            time.sleep(max(0, PAUSE_SECONDS - waited))
    print(json.dumps(waits))


if __name__ == "__main__":
    main()
