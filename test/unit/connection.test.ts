import { execFileSync } from "node:child_process";
import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import fc from "fast-check";
import { afterAll, expect, test } from "vitest";
import { describeRoute, routeTo, sshOptions } from "../../components/connection";
import { type NodeSettings, schema } from "../../components/schema";
import { configurationOf, hostKeys } from "./stack";

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "connection-"));
afterAll(() => {
  fs.rmSync(folder, { recursive: true });
});

const { nodes, ssh } = schema.parse(configurationOf("dev"));
const [head, worker] = nodes as [NodeSettings, NodeSettings];

/** What ssh makes of the options, by its own account; of an option with several values the first. */
function understood(options: string[], host: string): Record<string, string> {
  const text = execFileSync("ssh", ["-G", "-F", "none", ...options, "--", host], { encoding: "utf8" });
  return Object.fromEntries(
    text
      .trim()
      .split("\n")
      .reverse()
      .map((line) => [line.slice(0, line.indexOf(" ")), line.slice(line.indexOf(" ") + 1)]),
  );
}

test("the head is reached directly, by its own host key alone", () => {
  // ssh drops a key file that is not there.
  const keyFile = path.join(folder, "my key");
  fs.writeFileSync(keyFile, "");
  const options = understood(sshOptions(routeTo(head, nodes), { ...ssh, privateKeyPath: keyFile }), head.host);
  expect(options).toMatchObject({
    stricthostkeychecking: "true",
    userknownhostsfile: "/dev/null",
    globalknownhostsfile: "/dev/null",
    knownhostscommand: `/bin/echo %H ${hostKeys[0]}`,
    hostkeyalgorithms: "ssh-ed25519",
    identityfile: keyFile,
    identitiesonly: "yes",
    batchmode: "yes",
    connecttimeout: "15",
  });
  expect(options["proxycommand"]).toBeUndefined();
});

test("the worker is reached through the head, whose host key is checked too", () => {
  const options = understood(sshOptions(routeTo(worker, nodes), ssh), worker.host);
  expect(options["knownhostscommand"]).toBe(`/bin/echo %H ${hostKeys[1]}`);
  expect(options["identitiesonly"]).toBe("no");
  const jump = proxyArguments(options["proxycommand"] ?? "");
  expect(jump.slice(-8)).toEqual(["-W", "192.168.200.13:22", "-p", "22", "-l", "aurora", "--", "10.1.230.180"]);
  expect(jump).toContain(`KnownHostsCommand=/bin/echo %H ${hostKeys[0]}`);
  expect(jump).toContain("StrictHostKeyChecking=yes");
});

test("nodes behind another one find its connection where it shares it", () => {
  const socket = "/tmp/shared-%C";
  const master = understood(
    [...sshOptions(routeTo(head, nodes), ssh, socket), "-p", String(head.port), "-l", head.user],
    head.host,
  )["controlpath"];
  expect(master).toMatch(/^\/tmp\/shared-[0-9a-f]{40}$/);
  const jump = proxyArguments(
    understood(sshOptions(routeTo(worker, nodes), ssh, socket), worker.host)["proxycommand"] ?? "",
  );
  expect(understood(jump.slice(0, -2), head.host)["controlpath"]).toBe(master);
});

/** The jump's arguments, as the shell that ssh starts splits them, after ssh has expanded its percent signs. */
function proxyArguments(command: string): string[] {
  const expanded = command.replaceAll("%%", "%").replace(/^ssh /, "");
  return execFileSync("sh", ["-c", `for word in ${expanded}; do printf '%s\\0' "$word"; done`], { encoding: "utf8" })
    .split("\0")
    .slice(0, -1);
}

test("any key file name arrives at the jump as it is", () => {
  const name = fc
    .string({ unit: "binary", minLength: 1, maxLength: 12 })
    .filter((text) => !text.includes("\0") && Buffer.from(text).toString() === text);
  fc.assert(
    fc.property(name, (file) => {
      const option =
        sshOptions(routeTo(worker, nodes), { ...ssh, privateKeyPath: `/keys/${file}` }).find((text) =>
          text.startsWith("ProxyCommand="),
        ) ?? "";
      expect(proxyArguments(option.slice("ProxyCommand=".length)).slice(0, 4)).toEqual([
        "-F",
        "none",
        "-i",
        `/keys/${file}`,
      ]);
    }),
    { numRuns: 100 },
  );
});

test("an RSA host key is asked for by its signatures", () => {
  const rsa = { ...head, hostKey: "ssh-rsa AAAA" };
  expect(understood(sshOptions(routeTo(rsa, [rsa]), ssh), rsa.host)["hostkeyalgorithms"]).toBe(
    "rsa-sha2-512,rsa-sha2-256",
  );
});

test("a route is named with its hops, IPv6 in brackets", () => {
  expect(describeRoute(routeTo(worker, nodes))).toBe(
    "aurora@192.168.200.13:22 through spark-1 (aurora@10.1.230.180:22)",
  );
  const v6 = { ...head, host: "fd00::1", port: 2222 };
  expect(describeRoute(routeTo(v6, [v6]))).toBe("aurora@[fd00::1]:2222");
});
