"""Tries the fabric from this node to each of its peers, while they do the same: fabric.py PLAN

PLAN is JSON: {"address", "interface", "ports": own ports that peers connect to, "probePort",
"peers": [{"name", "address", "ports"}]}. Prints JSON: {"listening": problem or null, "peers": {name: result}}.
Only the fabric's addresses are used. Nothing is written, and nothing is left running.
"""

import errno
import ipaddress
import json
import os
import socket
import sys
import threading
import time

# Peers start a little apart: each is tried for this long. All ends after END_SECONDS, whatever happens.
CONNECT_SECONDS = 4
END_SECONDS = 6
ATTEMPT_SECONDS = 1
# Long enough for TCP to grow its window on a link of 200 Gb/s. Peers are sent to in turn, and share the time.
TRANSFER_SECONDS, ALL_TRANSFERS_SECONDS = 0.1, 0.15
CHUNK = bytes(1 << 20)
# Bytes a second, 1 Gb/s: less is a disturbed measurement, or the wrong way.
UNDISTURBED = 125_000_000
# What UDP over IPv4 can carry. The MTU of `lo` is larger.
DATAGRAM_LIMIT = 65507
# From linux/in.h and linux/in6.h; Python's socket module has no names for them.
IP_MTU_DISCOVER, IPV6_MTU_DISCOVER, PMTUDISC_PROBE = 10, 23, 3
FAREWELL, TRANSFER = b".", b"+"

plan = json.loads(sys.argv[1])
own = plan["address"]
family = socket.AF_INET6 if ipaddress.ip_address(own).version == 6 else socket.AF_INET
begun = time.monotonic()
farewells = set()
# One transfer at a time: they would share the link.
turn = threading.Lock()


def left(limit):
    return limit - (time.monotonic() - begun)


def serve_stream(connection):
    """Notes a peer's farewell, or answers its transfer with the number of bytes that came."""
    with connection:
        connection.settimeout(ATTEMPT_SECONDS)
        kind = connection.recv(1)
        if kind == FAREWELL:
            farewells.add(connection.recv(100).decode())
        elif kind == TRANSFER:
            total = 0
            while chunk := connection.recv(len(CHUNK)):
                total += len(chunk)
            connection.sendall(str(total).encode())


def answer(connection):
    try:
        serve_stream(connection)
    except (OSError, ValueError):
        pass  # the peer sees it, and tells


def accept(listener):
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def echo_datagrams(receiver):
    """Tells each sender how long its datagram was when it came."""
    while True:
        datagram, sender = receiver.recvfrom(1 << 16)
        receiver.sendto(str(len(datagram)).encode(), sender)


def listen():
    """Listens on the node's ports. One that is in use is left alone: who listens there answers the peers too.

    Returns what is in the way; None: nothing.
    """
    receiver = socket.socket(family, socket.SOCK_DGRAM)
    try:
        receiver.bind((own, plan["probePort"]))
    except OSError as error:
        return f"{own}, UDP port {plan['probePort']}: {error.strerror}"
    threading.Thread(target=echo_datagrams, args=(receiver,), daemon=True).start()
    for port in [*plan["ports"], plan["probePort"]]:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((own, port))
            listener.listen(64)
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE or port == plan["probePort"]:
                return f"{own}, port {port}: {error.strerror}"
            continue
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
    return None


def connect(peer, port):
    """A connection from this node's fabric address to a port of a peer."""
    connection = socket.socket(family, socket.SOCK_STREAM)
    connection.settimeout(ATTEMPT_SECONDS)
    try:
        connection.bind((own, 0))
        connection.connect((peer["address"], port))
    except OSError:
        connection.close()
        raise
    return connection


def reach(peer, port):
    """Null when a port of a peer can be connected to; else why not, after trying until the time is up."""
    while True:
        try:
            connect(peer, port).close()
            return None
        except OSError as error:
            reason = "no answer" if isinstance(error, TimeoutError) else error.strerror
        if left(CONNECT_SECONDS) <= 0:
            return reason
        time.sleep(0.05)


def interface_mtu():
    try:
        with open(f"/sys/class/net/{plan['interface']}/mtu", encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def comes_through(sender, peer, length):
    """Whether a peer says that a datagram of this length came."""
    for _ in range(3):
        try:
            sender.sendto(bytes(length), (peer["address"], plan["probePort"]))
            if int(sender.recv(100)) == length:
                return True
        except TimeoutError:
            continue
        except (OSError, ValueError):
            return False
    return False


def passes(peer, mtu):
    """Whether a packet of `mtu` bytes comes through whole; null where no datagram does, whatever its size."""
    payload = min(mtu - (48 if family == socket.AF_INET6 else 28), DATAGRAM_LIMIT)
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        if family == socket.AF_INET6:
            sender.setsockopt(socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, PMTUDISC_PROBE)
        else:
            sender.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, PMTUDISC_PROBE)
        sender.settimeout(0.2)
        sender.bind((own, 0))
        if comes_through(sender, peer, payload):
            return True
        return False if comes_through(sender, peer, 1) else None


def transfer(peer):
    """Bytes a second that TCP carries to a peer, as the peer counted them; null when it failed."""
    try:
        with connect(peer, plan["probePort"]) as connection:
            seconds = min(TRANSFER_SECONDS, ALL_TRANSFERS_SECONDS / len(plan["peers"]))
            started = time.monotonic()
            connection.sendall(TRANSFER)
            while time.monotonic() - started < seconds:
                connection.sendall(CHUNK)
            connection.shutdown(socket.SHUT_WR)
            total = int(connection.recv(100))
            return round(total / (time.monotonic() - started))
    except (OSError, ValueError):
        return None


def best_transfer(peer):
    """The best of up to three, where a tenth of a second fell into a moment in which the machine did something else."""
    rate = None
    for _ in range(3):
        rate = max(transfer(peer) or 0, rate or 0) or None
        if rate is None or rate > UNDISTURBED:
            break
    return rate


def part(peer):
    """Tells a peer that this node is done with it."""
    try:
        with connect(peer, plan["probePort"]) as connection:
            connection.sendall(FAREWELL + own.encode())
    except OSError:
        pass  # it will not wait longer than END_SECONDS


def try_peer(peer, result):
    """All that is asked of one peer. The first that answers do not wait for one that does not: they leave in time."""

    def try_port(port):
        result["ports"][port] = reach(peer, port)

    attempts = [threading.Thread(target=try_port, args=(port,), daemon=True) for port in result["ports"]]
    for attempt in attempts:
        attempt.start()
    for attempt in attempts:
        attempt.join()
    if result["ports"][plan["probePort"]] is not None:
        return
    if result["mtuBytes"]:
        result["mtuPassed"] = passes(peer, result["mtuBytes"])
    with turn:
        result["tcpBytesPerSecond"] = best_transfer(peer)
    part(peer)


def main():
    peers = plan["peers"]
    obstacle = listen()
    if obstacle is not None:
        return {"listening": obstacle, "peers": {}}
    mtu = interface_mtu()
    # Complete from the start: at the end it is printed as it is.
    results = {
        peer["name"]: {
            "ports": {port: "no answer" for port in [*peer["ports"], plan["probePort"]]},
            "mtuBytes": mtu,
            "mtuPassed": None,
            "tcpBytesPerSecond": None,
        }
        for peer in peers
    }
    threads = [threading.Thread(target=try_peer, args=(peer, results[peer["name"]]), daemon=True) for peer in peers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0, left(END_SECONDS)))
    # Peers may still be at it.
    while len(farewells) < len(peers) and left(END_SECONDS) > 0:
        time.sleep(0.02)
    return {"listening": None, "peers": results}


print(json.dumps(main()), flush=True)
os._exit(0)
