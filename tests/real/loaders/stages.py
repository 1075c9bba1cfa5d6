"""Tells stages: a line on standard output and, where NOTIFY_SOCKET is set, a message to it (sd_notify(3)).

Needs nothing but Python, so that any loader can take it over as it is.
"""

import os
import select
import socket
import time


def reached(stage):
    """Marks a stage now, and goes on once whoever listens has taken its sample (sd_notify_barrier(3))."""
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    if address := os.environ.get("NOTIFY_SOCKET"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.connect("\0" + address[1:] if address.startswith("@") else address)
            notify.send(f"X_STAGE={stage}\nMONOTONIC_USEC={now // 1000}\n".encode())
            ours, theirs = os.pipe()
            socket.send_fds(notify, [b"BARRIER=1"], [theirs])
            os.close(theirs)
            closed = select.poll()
            closed.register(ours, 0)
            answered = closed.poll(5000)
            os.close(ours)
            if not answered:
                raise TimeoutError(f"nobody dealt with {stage}")
    print(f"stage {stage} t={now / 1e9:.9f}", flush=True)
