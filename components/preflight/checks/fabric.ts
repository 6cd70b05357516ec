import * as net from "node:net";
import type { NodeSettings, Settings } from "../../schema";
import type { NetworkInterface, NodeFacts, RdmaDevice } from "../facts";
import type { NodeProbe } from "../probe";
import type { ProblemCode } from "../codes";
import { problem, type Problem } from "../problem";

/** What the ConnectX ports of Sparks are set to where they are set up for this. */
const fullMtuBytes = 9000;
/** Half of a ConnectX port, which the cable between two Sparks reaches in any case. */
const slowLinkMbps = 100_000;
/**
 * One TCP stream of a tenth of a second on a busy machine fills little of a link of 200 Gb/s. Less than this share of it
 * has gone another way, such as over the 1 Gb/s port.
 */
const slowShare = 0.005;

/** Whether each node's end of the fabric is as the settings say, the ends fit together, and the way between them is open. */
export function checkFabric(probes: readonly NodeProbe[], settings: Settings): Problem[] {
  // A node alone needs a fabric address for Ray, and no link.
  const needsLink = probes.length > 1;
  const addresses = probes.flatMap(({ node, facts }) => (facts === null ? [] : checkAddress(node, facts, needsLink)));
  if (!needsLink) return addresses;
  const allLinks = probes.flatMap(({ node, facts }) => (facts === null ? [] : checkLink(node, facts, settings)));
  const management = allLinks.filter(({ code }) => code === "fabric-address-management").map(({ node }) => node);
  const blamed = new Set([...addresses.map(({ node }) => node), ...management]);
  const apart = checkSubnets(probes.filter(({ node }) => !blamed.has(node.name)));
  // Of ends that are not of one network it does not matter in what else they differ.
  const ends = apart.length > 0 ? [] : checkEnds(probes.filter(({ node }) => !management.includes(node.name)));
  const isNamed = (code: ProblemCode, name: string) => ends.some((each) => each.code === code && each.node === name);
  const links = allLinks
    // An end that is below the others is told what they have.
    .filter(({ code, node }) => !(code === "fabric-mtu-low" && isNamed("fabric-mtu-unequal", node)))
    .filter(({ code, node }) => !(code === "fabric-speed-low" && isNamed("fabric-speed-unequal", node)));
  return [...addresses, ...links, ...checkTwice(probes), ...apart, ...ends, ...checkPaths(probes, blamed)];
}

/** The interface of the settings, and the one that has the address of the settings: the same, where all is well. */
function endOf(
  { fabric }: NodeSettings,
  facts: NodeFacts | null,
): { named: NetworkInterface | undefined; holder: NetworkInterface | undefined } {
  const holds = ({ addresses }: NetworkInterface) => addresses.some(({ address }) => address === fabric.address);
  const named = facts?.interfaces.find(({ name }) => name === fabric.interface);
  return { named, holder: named !== undefined && holds(named) ? named : facts?.interfaces.find(holds) };
}

/** The interface of the settings, if it is there, and no other one has the address: then that one was meant. */
function linkOf({ node, facts }: Pick<NodeProbe, "node" | "facts">): NetworkInterface | undefined {
  const { named, holder } = endOf(node, facts);
  return holder === undefined || holder === named ? named : undefined;
}

function checkAddress(node: NodeSettings, facts: NodeFacts, needsLink: boolean): Problem[] {
  const { name, fabric } = node;
  // Without `ip` nothing is known, which a note says.
  if (facts.interfaces.length === 0) return [];
  const { named: found, holder } = endOf(node, facts);
  const problems: Problem[] = [];
  if (found === undefined) {
    problems.push(
      problem("fabric-interface-missing", name, {
        found: `fabric.interface ${fabric.interface} is not there; there are ${facts.interfaces.map((each) => each.name).join(", ")}`,
        expected: holder === undefined ? "one of these" : `${holder.name}, which has ${fabric.address}`,
      }),
    );
  } else if (needsLink && !found.up && (holder === undefined || holder === found)) {
    const mend = `put the cable in, or: sudo ip link set ${found.name} up, on ${name}`;
    problems.push(problem("fabric-interface-down", name, { found: `${found.name} is down`, expected: "a link", mend }));
  }
  // An interface that loses its link may lose its address with it.
  const lost = needsLink && found?.up === false && holder === undefined;
  if (!lost && (holder === undefined || (found !== undefined && holder !== found))) {
    const has = found?.addresses.map(({ address }) => address).join(", ") || "no address";
    const where = holder === undefined ? "no interface there has it" : `${holder.name} has it`;
    problems.push(
      problem("fabric-address-missing", name, {
        found: `fabric.address ${fabric.address} is not on ${fabric.interface}, which has ${found === undefined ? "no place there" : has}; ${where}`,
        expected: `${fabric.address} on ${fabric.interface}`,
      }),
    );
  }
  return problems;
}

function checkLink(node: NodeSettings, facts: NodeFacts, { accelerator }: Settings): Problem[] {
  const { name, fabric } = node;
  const found = linkOf({ node, facts });
  const ports = facts.rdmaDevices.flatMap(({ netdevs }) => netdevs);
  const problems: Problem[] = [];
  // A worker without another network has its default route through the head: over the cable, as it should be. Of a bridge
  // over the cable the speed may not be known.
  const isSlow = !ports.includes(fabric.interface) && found?.speedMbps != null && found.speedMbps < slowLinkMbps;
  if (isSlow && facts.defaultRouteInterfaces.includes(fabric.interface)) {
    const expected = "the interface of the cable between the Sparks";
    problems.push(
      problem("fabric-address-management", name, { found: `${fabric.interface} holds the default route`, expected }),
    );
  } else if (isSlow && accelerator === "gb10" && ports.length > 0) {
    const expected = `one of ${[...new Set(ports)].join(", ")}`;
    problems.push(
      problem("fabric-address-management", name, { found: `${fabric.interface} is no ConnectX port`, expected }),
    );
  }
  // What another interface is like does not matter.
  const isEnd = found?.up === true && problems.length === 0;
  if (isEnd && accelerator === "gb10" && found.speedMbps !== null && found.speedMbps < slowLinkMbps) {
    const expected = `at least ${slowLinkMbps} Mb/s`;
    problems.push(problem("fabric-speed-low", name, { found: `${found.name}: ${found.speedMbps} Mb/s`, expected }));
  }
  if (isEnd && found.mtuBytes !== null && found.mtuBytes < fullMtuBytes) {
    const expected = `${fullMtuBytes}, on all nodes`;
    problems.push(problem("fabric-mtu-low", name, { found: `${found.name}: MTU ${found.mtuBytes}`, expected }));
  }
  // Without `ip` the names have to do.
  const isJudged = isEnd || facts.interfaces.length === 0;
  return [...problems, ...(accelerator === "gb10" ? checkHcas(node, facts.rdmaDevices, isJudged) : [])];
}

/**
 * The number of the ConnectX port, which twins share, from the first name that tells it: `rocep1s0f1`, `enp1s0f1np1`.
 * Devices (`mlx5_0`) and interfaces may go by other names.
 */
function portNumber(...names: readonly string[]): string | undefined {
  return names.flatMap((name) => /[ps]\d+f(\d+)(?:np\d+)?$/.exec(name)?.[1] ?? []).at(0);
}

function checkHcas({ name, fabric }: NodeSettings, devices: readonly RdmaDevice[], isJudged: boolean): Problem[] {
  const there = devices.map((device) => device.name).join(", ") || "no RDMA device";
  const own = devices.find(({ netdevs }) => netdevs.includes(fabric.interface));
  const port = portNumber(fabric.interface, ...(own === undefined ? [] : [own.name]));
  const problems = fabric.hcas.flatMap((hca): Problem[] => {
    const device = devices.find((each) => each.name === hca);
    if (device === undefined) {
      return [problem("hca-missing", name, { found: `${hca} is not there; there is ${there}`, expected: hca })];
    }
    // Beside an interface that is named wrong, or has no link, the device may be right.
    if (!isJudged) return [];
    const itsPort = portNumber(hca, ...device.netdevs);
    const isOther = port !== undefined && itsPort !== undefined && itsPort !== port;
    if (isOther && !device.netdevs.includes(fabric.interface)) {
      const found = `${hca} belongs to ${device.netdevs.join(", ") || "another port"}`;
      return [problem("hca-other-port", name, { found, expected: `a device of the port of ${fabric.interface}` })];
    }
    if (device.portState !== null && device.portState !== "ACTIVE") {
      return [problem("hca-down", name, { found: `${hca} is ${device.portState}`, expected: "ACTIVE" })];
    }
    const routable = device.gids.some(
      ({ version, address }) => (version === null || version === "RoCE v2") && address !== null,
    );
    if (device.gids.length > 0 && !routable) {
      const found = `${hca} has no RoCE v2 GID with an IPv4 address`;
      const expected = `an address on ${device.netdevs.join(", ") || "its interface"}`;
      return [problem("hca-no-address", name, { found, expected })];
    }
    return [];
  });
  const twins = devices.filter(
    (each) => portNumber(each.name, ...each.netdevs) === port && !fabric.hcas.includes(each.name),
  );
  if (isJudged && port !== undefined && fabric.hcas.length === 1 && problems.length === 0 && twins.length > 0) {
    const twin = twins.map((each) => each.name).join(", ");
    problems.push(
      problem("hca-twin-missing", name, {
        found: `fabric.hcas names ${fabric.hcas.join(", ")} alone`,
        expected: `its twin too: ${twin}`,
      }),
    );
  }
  return problems;
}

/** Addresses that another node's settings claim, and this machine has too. */
function checkTwice(probes: readonly NodeProbe[]): Problem[] {
  return probes.flatMap(({ node, facts }) =>
    (facts?.interfaces ?? []).flatMap(({ name, addresses }) =>
      probes
        .filter(
          (other) => other.node !== node && addresses.some(({ address }) => address === other.node.fabric.address),
        )
        // Where the other one lacks it, the settings are crossed, and each node's own problem says so.
        .filter((other) => linkOf(other)?.addresses.some(({ address }) => address === other.node.fabric.address))
        .map((other) =>
          problem("fabric-address-twice", node.name, {
            found: `${name} has ${other.node.fabric.address}, which is ${other.node.name}'s fabric.address`,
            expected: "each address on one machine",
          }),
        ),
    ),
  );
}

/** The address of the settings with its prefix, as the interface has it. */
function subnetOf(probe: NodeProbe): { address: string; prefix: number } | undefined {
  const largest = net.isIPv6(probe.node.fabric.address) ? 128 : 32;
  return linkOf(probe)?.addresses.find(
    ({ address, prefix }) => address === probe.node.fabric.address && prefix <= largest,
  );
}

/** Whether two ends are known to be in different subnets. */
function areApart(one: NodeProbe, other: NodeProbe): boolean {
  const [subnet, far] = [subnetOf(one), subnetOf(other)];
  if (subnet === undefined || far === undefined) return false;
  const family = net.isIPv6(subnet.address) ? "ipv6" : "ipv4";
  const network = new net.BlockList();
  network.addSubnet(subnet.address, subnet.prefix, family);
  return !network.check(far.address, family);
}

/** Ports of a peer that a node could not connect to, and why. */
function refusals({ fabric }: NodeProbe, { node }: NodeProbe): [string, string][] {
  return Object.entries(fabric?.peers[node.name]?.ports ?? {}).flatMap(([port, reason]): [string, string][] =>
    reason === null ? [] : [[port, reason]],
  );
}

/** One problem for all: which of the networks is the right one only a person knows. Where a router joins them all is well. */
function checkSubnets(probes: readonly NodeProbe[]): Problem[] {
  const cutOff = probes.find((probe) =>
    probes.some((other) => areApart(probe, other) && refusals(probe, other).length > 0),
  );
  if (cutOff === undefined) return [];
  const found = probes
    .flatMap((probe) => {
      const subnet = subnetOf(probe);
      return subnet === undefined ? [] : [`${probe.node.name}: ${subnet.address}/${subnet.prefix}`];
    })
    .join(", ");
  return [problem("fabric-subnets-differ", cutOff.node.name, { found, expected: "addresses in one subnet" })];
}

/**
 * The MTU that all ends should have: of those that are large enough, if any, else of all, the one that most have; then the
 * usual one; then the largest.
 */
function commonMtu(all: readonly number[]): number {
  const full = all.filter((mtu) => mtu >= fullMtuBytes);
  const candidates = full.length > 0 ? full : [...all];
  const count = (mtu: number) => candidates.filter((each) => each === mtu).length;
  const isUsual = (mtu: number) => Number(mtu === fullMtuBytes);
  const [first = fullMtuBytes] = candidates.sort((a, b) => count(b) - count(a) || isUsual(b) - isUsual(a) || b - a);
  return first;
}

/** What must be the same on all ends: each that differs from the best one is at fault. */
function checkEnds(probes: readonly NodeProbe[]): Problem[] {
  const links = probes.flatMap((probe) => {
    const link = linkOf(probe);
    return link?.up ? [{ node: probe.node.name, link }] : [];
  });
  const differing = (
    code: "fabric-mtu-unequal" | "fabric-speed-unequal",
    what: string,
    pick: (link: NetworkInterface) => number | null,
    bestOf: (values: readonly number[]) => number,
    mend?: (value: number) => string,
  ) => {
    const ends = links.flatMap(({ node, link }) => {
      const value = pick(link);
      return value === null ? [] : [{ node, name: link.name, value }];
    });
    const wanted = bestOf(ends.map(({ value }) => value));
    const best = ends.find(({ value }) => value === wanted);
    return ends
      .filter(({ value }) => value !== wanted)
      .map(({ node, name, value }) =>
        problem(code, node, {
          found: `${name}: ${what} ${value}`,
          expected: `${wanted}, as ${best?.name ?? ""} on ${best?.node ?? ""}`,
          ...(mend && { mend: mend(wanted) }),
        }),
      );
  };
  return [
    ...differing(
      "fabric-mtu-unequal",
      "MTU",
      ({ mtuBytes }) => mtuBytes,
      commonMtu,
      (mtu) => `Set the same MTU on all ends, in netplan: \`mtu: ${Math.max(mtu, fullMtuBytes)}\`.`,
    ),
    ...differing(
      "fabric-speed-unequal",
      "speed in Mb/s",
      ({ speedMbps }) => speedMbps,
      (speeds) => Math.max(...speeds),
    ),
  ];
}

/** What nodes saw of each other. Where one end has a problem of its own, that says it all. */
function checkPaths(probes: readonly NodeProbe[], blamed: ReadonlySet<string>): Problem[] {
  const present = probes.filter(
    ({ node, facts, fabric }) => facts !== null && fabric !== null && !blamed.has(node.name),
  );
  const untried = present.flatMap(({ node, fabric }) =>
    fabric?.listening == null
      ? []
      : [
          problem("fabric-untried", node.name, {
            found: fabric.listening || "no answer",
            expected: "a try of each way",
          }),
        ],
  );
  const usable = present.filter(({ fabric }) => fabric?.listening === null);
  const between = usable.flatMap((probe) =>
    usable.flatMap((other) => {
      const { node, fabric } = probe;
      const peer = other.node;
      const [link, far] = [linkOf(probe), linkOf(other)];
      const result = fabric?.peers[peer.name];
      if (peer === node || result === undefined) return [];
      const refused = refusals(probe, other);
      if (refused.length > 0) {
        // Told already.
        if (areApart(probe, other)) return [];
        const reasons = refused.map(([port, reason]) => `port ${port}: ${reason}`).join(", ");
        const found = `no connection from ${node.fabric.address} to ${peer.name}, ${peer.fabric.address} (${reasons})`;
        return [
          problem("fabric-blocked", node.name, { found, expected: "TCP between all fabric addresses, both ways" }),
        ];
      }
      const problems: Problem[] = [];
      // Unequal ends are named already.
      const isUnequal = link?.mtuBytes != null && far?.mtuBytes != null && link.mtuBytes !== far.mtuBytes;
      if (result.mtuPassed === false && !isUnequal) {
        const found = `a packet of ${result.mtuBytes ?? "?"} bytes does not reach ${peer.name}, ${peer.fabric.address}`;
        problems.push(
          problem("fabric-mtu-path", node.name, { found, expected: `MTU ${result.mtuBytes ?? "?"} all the way` }),
        );
      }
      const speed = link?.speedMbps ?? null;
      const rate = result.tcpBytesPerSecond;
      if (speed !== null && rate !== null && (rate * 8) / 1e6 < speed * slowShare) {
        const found = `${((rate * 8) / 1e9).toFixed(1)} Gb/s to ${peer.name} by TCP`;
        problems.push(
          problem("fabric-slow", node.name, { found, expected: `more, on a link of ${speed / 1000} Gb/s` }),
        );
      }
      return problems;
    }),
  );
  return [...untried, ...between];
}
