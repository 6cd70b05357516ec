import * as dgram from "node:dgram";
import { execFileSync } from "node:child_process";
import * as fs from "node:fs";
import * as net from "node:net";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type Ended, Sandbox } from "./sandbox";

// Ports of the test's own, below those that the system gives away.
const base = 20_000 + (process.pid % 1000) * 10;
const [headPort, nodePort, objectPort, probePort] = [base, base + 1, base + 2, base + 3];
const absent = "192.0.2.7";
const second = 1000;
// END_SECONDS is 6. One second is the script's, one is for Python's start on a busy machine.
const limit = 8 * second;

let box: Sandbox;
let closers: (() => unknown)[];
beforeEach(() => {
  box = new Sandbox();
  closers = [];
});
afterEach(async () => {
  for (const close of closers) await close();
  box.remove();
  // Nothing is left listening, neither by the script nor by the test.
  const sockets = execFileSync("ss", ["-Hltun"], { encoding: "utf8", env: box.environment() });
  const ports = new RegExp(`:(?:${[headPort, nodePort, objectPort, probePort].join("|")})\\s`);
  expect(sockets.split("\n").filter((line) => ports.test(line))).toEqual([]);
});

const ports = (address: string) => [...(address === "127.0.0.2" ? [headPort] : []), nodePort, objectPort];
const open = (address: string) => Object.fromEntries([...ports(address), probePort].map((port) => [port, null]));

interface Peer {
  ports: Record<string, string | null>;
  mtuBytes: number | null;
  mtuPassed: boolean | null;
  tcpBytesPerSecond: number | null;
}
interface Seen {
  listening: string | null;
  peers: Record<string, Peer>;
}

/** Runs fabric.py as the node of one address. Peers have their address as name. */
async function node(address: string, others: string[], iface = "lo") {
  const peers = others.map((other) => ({ name: other, address: other, ports: ports(other) }));
  const plan = { address, interface: iface, ports: ports(address), probePort, peers };
  const started = Date.now();
  const ended: Ended = await box.run("fabric.py", [JSON.stringify(plan)]);
  expect([ended.code, ended.stderr]).toEqual([0, ""]);
  return { took: Date.now() - started, seen: JSON.parse(ended.stdout) as Seen };
}

const lo = Number(fs.readFileSync("/sys/class/net/lo/mtu", "utf8"));
const well = (address: string): Peer => ({
  ports: open(address),
  mtuBytes: lo,
  mtuPassed: true,
  tcpBytesPerSecond: expect.any(Number) as number,
});

/** Listens on an address as a stranger; what it gets is up to `handle`. */
async function stranger(address: string, port: number, handle: (socket: net.Socket) => unknown = () => undefined) {
  const sockets = new Set<net.Socket>();
  const server = net.createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined);
    handle(socket);
  });
  await new Promise<void>((resolve) => server.listen(port, address, resolve));
  closers.push(() => {
    for (const socket of sockets) socket.destroy();
    return new Promise((resolve) => server.close(resolve));
  });
  return { connections: () => sockets.size, listening: () => server.listening };
}

/** Answers datagrams as a peer does, as far as they are not longer than the path carries. */
async function datagrams(address: string, carried: number) {
  const socket = dgram.createSocket("udp4");
  socket.on("message", (message, { port, address: sender }) => {
    if (message.length <= carried) socket.send(String(message.length), port, sender);
  });
  await new Promise<void>((resolve) => socket.bind(probePort, address, resolve));
  closers.push(() => new Promise<void>((resolve) => socket.close(resolve)));
}

/** A peer with all ports open of which only the fabric's own protocol is missing, or done by `handle`. */
async function mutePeer(address: string, handle?: (socket: net.Socket) => unknown) {
  for (const port of [...ports(address), probePort]) await stranger(address, port, handle);
}

test.each([[["127.0.0.2", "127.0.0.3"]], [["127.0.0.2", "127.0.0.3", "127.0.0.4"]]])(
  "the nodes %j reach each other on all ways, in short time",
  async (addresses) => {
    const before = fs.readdirSync(box.home, { recursive: true });
    const others = (address: string) => addresses.filter((other) => other !== address);
    const results = await Promise.all(addresses.map((address) => node(address, others(address))));
    results.forEach(({ seen, took }, index) => {
      const reached = others(addresses[index] ?? "");
      expect(seen).toEqual({
        listening: null,
        peers: Object.fromEntries(reached.map((other) => [other, well(other)])),
      });
      for (const other of reached) expect(seen.peers[other]?.tcpBytesPerSecond).toBeGreaterThan(0);
      expect(took).toBeLessThan(4 * second);
    });
    expect(fs.readdirSync(box.home, { recursive: true })).toEqual(before);
  },
);

test("a peer that never starts refuses, and the node ends in time", async () => {
  const { seen, took } = await node("127.0.0.2", ["127.0.0.3"]);
  const refused = "Connection refused";
  expect(seen).toEqual({
    listening: null,
    peers: {
      "127.0.0.3": {
        ports: { [nodePort]: refused, [objectPort]: refused, [probePort]: refused },
        mtuBytes: lo,
        mtuPassed: null,
        tcpBytesPerSecond: null,
      },
    },
  });
  expect(took).toBeGreaterThan(4 * second);
  expect(took).toBeLessThan(limit);
});

test("a peer that swallows all packets gives no answer on each port, and the node ends in time", async () => {
  // A listener with a full queue drops what comes, as a firewall does.
  const full = `
import socket, sys, time
kept = []
for port in map(int, sys.argv[1:]):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.2", port))
    listener.listen(0)
    kept.append(listener)
    for _ in range(3):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(("127.0.0.2", port))
        kept.append(client)
time.sleep(0.3)
open("full", "w").close()
while not __import__("os").path.exists("enough"):
    time.sleep(0.05)
`;
  const all = [headPort, nodePort, objectPort, probePort];
  const silent = box.exec(["python3", "-c", full, ...all.map(String)]);
  while (!fs.existsSync(`${box.home}/full`)) await new Promise((resolve) => setTimeout(resolve, 20));
  const { seen, took } = await node("127.0.0.3", ["127.0.0.2"]);
  box.write("enough", "");
  expect(await silent).toEqual({ code: 0, stdout: "", stderr: "" });
  expect(seen.peers).toEqual({
    "127.0.0.2": {
      ports: Object.fromEntries(all.map((port) => [port, "no answer"])),
      mtuBytes: lo,
      mtuPassed: null,
      tcpBytesPerSecond: null,
    },
  });
  expect(took).toBeLessThan(limit);
});

test("nodes that start apart see all of each other, though a third one never starts", async () => {
  const early = node("127.0.0.2", ["127.0.0.4", "127.0.0.3"]);
  await new Promise((resolve) => setTimeout(resolve, 2.5 * second));
  const late = node("127.0.0.3", ["127.0.0.4", "127.0.0.2"]);
  const [{ seen: first }, { seen: last }] = await Promise.all([early, late]);
  expect(first.peers["127.0.0.3"]).toEqual(well("127.0.0.3"));
  expect(last.peers["127.0.0.2"]).toEqual(well("127.0.0.2"));
  for (const { peers } of [first, last]) {
    expect(peers["127.0.0.4"]).toMatchObject({ ports: { [probePort]: "Connection refused" }, mtuPassed: null });
  }
});

test("a port of a stranger who accepts counts as open, and the stranger stays", async () => {
  const running = await stranger("127.0.0.2", nodePort);
  const [head, worker] = await Promise.all([node("127.0.0.2", ["127.0.0.3"]), node("127.0.0.3", ["127.0.0.2"])]);
  expect(head.seen).toEqual({ listening: null, peers: { "127.0.0.3": well("127.0.0.3") } });
  expect(worker.seen).toEqual({ listening: null, peers: { "127.0.0.2": well("127.0.0.2") } });
  expect([running.connections(), running.listening()]).toEqual([1, true]);
});

test("a stranger on the probe's own port is in the way, by TCP and by UDP", async () => {
  await stranger("127.0.0.2", probePort);
  expect((await node("127.0.0.2", ["127.0.0.3"])).seen).toEqual({
    listening: `127.0.0.2, port ${String(probePort)}: Address already in use`,
    peers: {},
  });
  await datagrams("127.0.0.4", 0);
  expect((await node("127.0.0.4", ["127.0.0.3"])).seen).toEqual({
    listening: `127.0.0.4, UDP port ${String(probePort)}: Address already in use`,
    peers: {},
  });
});

test("an address that the machine does not have is said at once", async () => {
  const { seen, took } = await node(absent, ["127.0.0.3"]);
  expect(seen).toEqual({
    listening: `${absent}, UDP port ${String(probePort)}: Cannot assign requested address`,
    peers: {},
  });
  expect(took).toBeLessThan(4 * second);
});

test("each peer is judged by itself: what carries which packets, and what answers a transfer", async () => {
  const paths: [string, number | null, boolean | null][] = [
    ["127.0.0.3", 1400, false],
    ["127.0.0.4", 65507, true],
    // A firewall against UDP says nothing of the MTU.
    ["127.0.0.5", 0, null],
    ["127.0.0.6", null, null],
  ];
  const breaks: [string, (socket: net.Socket) => unknown][] = [
    ["127.0.0.7", (socket) => socket.end()],
    ["127.0.0.8", (socket) => socket.resetAndDestroy()],
    ["127.0.0.9", (socket) => socket.resume().end("SSH-2.0-OpenSSH_9.6\r\n")],
  ];
  for (const [address, carried] of paths) {
    await mutePeer(address);
    if (carried !== null) await datagrams(address, carried);
  }
  for (const [address, handle] of breaks) await mutePeer(address, handle);
  const judged: [string, boolean | null][] = [
    ...paths.map(([address, , passed]): [string, boolean | null] => [address, passed]),
    ...breaks.map(([address]): [string, null] => [address, null]),
  ];
  const { seen, took } = await node(
    "127.0.0.2",
    judged.map(([address]) => address),
  );
  expect(seen.peers).toEqual(
    Object.fromEntries(
      judged.map(([address, mtuPassed]) => [
        address,
        { ports: open(address), mtuBytes: lo, mtuPassed, tcpBytesPerSecond: null },
      ]),
    ),
  );
  expect(took).toBeLessThan(limit);
});

test("an interface that is not there has no MTU, and the rest is tried", async () => {
  const [{ seen }] = await Promise.all([
    node("127.0.0.2", ["127.0.0.3"], "enp9s9"),
    node("127.0.0.3", ["127.0.0.2"], "enp9s9"),
  ]);
  expect(seen.peers["127.0.0.3"]).toEqual({ ...well("127.0.0.3"), mtuBytes: null, mtuPassed: null });
});

// Loopback has one IPv6 address, and a second one would change the machine: the node is its own peer here. That two
// nodes find each other is the same code as with IPv4.
test("IPv6 is tried as IPv4 is", async () => {
  const { seen, took } = await node("::1", ["::1"]);
  expect(seen).toEqual({ listening: null, peers: { "::1": well("::1") } });
  expect(took).toBeLessThan(4 * second);
});

test("a node without peers ends at once", async () => {
  expect((await node("127.0.0.2", [])).seen).toEqual({ listening: null, peers: {} });
});
