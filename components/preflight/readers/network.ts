import { parse } from "yaml";
import { numberIn } from "./words";

// What the network tools of a Spark print. Null and empty lists stand for what the text does not tell.

/** An address with its prefix length. */
export interface InterfaceAddress {
  /** IPv4 or IPv6. */
  address: string;
  prefix: number;
}

/** An interface of `ip link`. */
export interface Link {
  /** Without the `@if2` or `@parent` part. */
  name: string;
  /** e.g. `UP`, `NO-CARRIER`. `UP` only means switched on: it also stands on a port without a cable. */
  flags: string[];
  mtuBytes: number | null;
  /** e.g. `UP`, `DOWN`, `UNKNOWN` (normal on `lo`). */
  state: string | null;
  /** Null without `-s`. RDMA passes the kernel by, so a busy RoCE port may count little here. */
  rxBytes: number | null;
  txBytes: number | null;
}

/** An interface of `ip addr show`. */
export interface AddressedLink extends Omit<Link, "rxBytes" | "txBytes"> {
  addresses: InterfaceAddress[];
}

// `qdisc`, `master`, `mode`, `group` and `qlen` come and go between the parts that are read.
const linkHeader = /^\s*\d+: ([^:@\s]+)(?:@[^:\s]+)?: <([^>]*)>(?: mtu (\d+))?(?:.*? state (\S+))?/;

function readLinkHeader(line: string): Omit<AddressedLink, "addresses"> | null {
  const header = linkHeader.exec(line);
  if (header === null) return null;
  const [, name = "", flags = "", mtu, state] = header;
  return { name, flags: splitFlags(flags), mtuBytes: mtu === undefined ? null : Number(mtu), state: state ?? null };
}

function splitFlags(flags: string): string[] {
  return flags.split(",").filter((flag) => flag !== "");
}

/** Reads `ip link` and `ip -s link show`. A counter is the first number of the line below its `RX:` or `TX:` header. */
export function readIpLink(text: string): Link[] {
  const links: Link[] = [];
  const lines = text.split(/\r?\n/);
  for (const [index, line] of lines.entries()) {
    const header = readLinkHeader(line);
    if (header) links.push({ ...header, rxBytes: null, txBytes: null });
    const direction = /^\s*([RT]X):\s+bytes\s/.exec(line)?.[1];
    const bytes = numberIn(lines[index + 1] ?? "", /^\s*(\d+)[\s\d]*$/);
    const link = links.at(-1);
    if (link && direction === "RX") link.rxBytes = bytes;
    if (link && direction === "TX") link.txBytes = bytes;
  }
  return links;
}

/** Reads `ip addr show`, also indented as manuals quote it. */
export function readIpAddress(text: string): AddressedLink[] {
  const links: AddressedLink[] = [];
  for (const line of text.split(/\r?\n/)) {
    const header = readLinkHeader(line);
    if (header) links.push({ ...header, addresses: [] });
    if (/^\s*inet6?\s/.test(line)) links.at(-1)?.addresses.push(...readAddresses(line));
  }
  return links;
}

/** The addresses among the words of a line; not the one after `peer`, which is the other end's. */
function readAddresses(line: string): InterfaceAddress[] {
  return Array.from(line.matchAll(/(?<!peer)\s([0-9a-f.:]+)\/(\d+)(?=\s|$)/g), ([, address = "", prefix]) => ({
    address,
    prefix: Number(prefix),
  }));
}

const briefLine =
  /^[ \t]*([^@\s]+)(?:@\S+)?[ \t]+(UNKNOWN|NOTPRESENT|DOWN|LOWERLAYERDOWN|TESTING|DORMANT|UP)(?!\S)(.*)$/gm;

/** Reads `ip -br link`. */
export function readIpBriefLink(text: string): { name: string; state: string; flags: string[] }[] {
  return Array.from(text.matchAll(briefLine), ([, name = "", state = "", rest = ""]) => {
    return { name, state, flags: splitFlags(/<([^<>]*)>\s*$/.exec(rest)?.[1] ?? "") };
  });
}

/** Reads `ip -br addr`. A port that is down has no third column; DHCP adds `metric 100` after the address. */
export function readIpBriefAddress(text: string): { name: string; state: string; addresses: InterfaceAddress[] }[] {
  return Array.from(text.matchAll(briefLine), ([, name = "", state = "", rest = ""]) => {
    return { name, state, addresses: readAddresses(rest) };
  });
}

/** Reads `ethtool INTERFACE`. */
export function readEthtool(text: string): {
  /** Mb/s on the wire (200000), which is more than the PCIe lanes behind one port carry; null for `Unknown!`. */
  speedMbps: number | null;
  linkDetected: boolean | null;
} {
  const detected = /\bLink detected: (yes|no)\b/.exec(text)?.[1];
  return {
    speedMbps: numberIn(text, /\bSpeed: (\d+)Mb\/s/),
    linkDetected: detected === undefined ? null : detected === "yes",
  };
}

/** An interface under `ethernets` of a netplan file. */
export interface NetplanInterface {
  name: string;
  /** As written, with the prefix: `192.168.100.11/24`. */
  addresses: string[];
  /** Null when the file sets none: the interface keeps 1500. */
  mtuBytes: number | null;
  dhcp4: boolean | null;
}

/** Reads a netplan file; text that is no YAML gives an empty list. */
export function readNetplan(text: string): NetplanInterface[] {
  return Object.entries(fieldsOf(fieldsOf(fieldsOf(parseYaml(text)).network).ethernets))
    .filter(([name]) => /^[\w.-]+$/.test(name))
    .map(([name, value]) => {
      const { addresses, mtu, dhcp4 } = fieldsOf(value);
      const mtuBytes = numberIn(typeof mtu === "string" ? mtu : "", /^(\d+)$/);
      return { name, addresses: addressesOf(addresses), mtuBytes, dhcp4: yesOrNo(dhcp4) };
    });
}

/** The document with every scalar as the text that stands there: YAML would take `no` for a word and 0700 for 448. */
function parseYaml(text: string): unknown {
  try {
    return parse(text, { schema: "failsafe", logLevel: "error" });
  } catch {
    return null;
  }
}

function fieldsOf(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
}

/** An address is a word, or the key of its own options. */
function addressesOf(list: unknown): string[] {
  const entries: unknown[] = Array.isArray(list) ? list : [];
  return entries
    .flatMap((entry) => (typeof entry === "string" ? [entry] : Object.keys(fieldsOf(entry))))
    .filter((address) => /^[0-9a-fA-F.:]+\/\d+$/.test(address));
}

/** A boolean as netplan takes it. */
function yesOrNo(word: unknown): boolean | null {
  if (typeof word !== "string") return null;
  if (/^(true|on|yes|y)$/i.test(word)) return true;
  return /^(false|off|no|n)$/i.test(word) ? false : null;
}

/** Reads `ping -M do -s BYTES`, which finds out whether packets of a size pass whole. */
export function readPing(text: string): {
  /** As given to `-s`; IPv4 and ICMP headers add 28. */
  sentPayloadBytes: number | null;
  replies: number;
  /** Payload and the 8 bytes of the ICMP header. */
  replyBytes: number | null;
  /** From `message too long, mtu=1500` (newer: `mtu: 1500`): the sending interface refused; null when none did. */
  localMtuBytes: number | null;
} {
  const replies = Array.from(text.matchAll(/^(\d+) bytes from .*icmp_seq=/gm), ([, bytes]) => Number(bytes));
  return {
    sentPayloadBytes: numberIn(text, /^PING .* (\d+)(?:\(\d+\) bytes of data| data bytes)/m),
    replies: replies.length,
    replyBytes: replies[0] ?? null,
    localMtuBytes: numberIn(text, /[Mm]essage too long, mtu(?:=|: )(\d+)/),
  };
}
