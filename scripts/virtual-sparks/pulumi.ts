import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";

import { STATE } from "./paths";
import { BACKEND_URL, gone, kill, labProcesses, signal } from "./processes";
import { PROJECT, STACK } from "./project";
import { say } from "./progress";
import { attempt, LabError, passThrough, run } from "./run";

const BACKEND = BACKEND_URL.slice("file://".length);
const PASSPHRASE = join(STATE, "passphrase");
const INTERRUPT_MS = 5000;
/** How long a command may take that touches no node. */
const SHORT_MS = 60_000;

/** This process's environment with what Pulumi needs to work on the lab's stack. */
export function pulumiEnvironment(): NodeJS.ProcessEnv {
  return {
    ...process.env,
    PULUMI_BACKEND_URL: BACKEND_URL,
    PULUMI_CONFIG_PASSPHRASE_FILE: PASSPHRASE,
    PULUMI_SKIP_UPDATE_CHECK: "true",
  };
}

/** Throws where there is no lab, and so no project of it, yet. */
export function requireProject(): void {
  if (!existsSync(join(PROJECT, "Pulumi.yaml")))
    throw new LabError("There is no lab here yet. Start it: scripts/lab up");
}

/** Runs any Pulumi command on the lab's stack, on this terminal; returns its exit code. */
export async function pulumi(args: readonly string[]): Promise<number> {
  requireProject();
  if (!existsSync(PASSPHRASE)) await initStack();
  return await passThrough(["pulumi", "-C", PROJECT, ...withoutUnseenPreview(args)], { env: pulumiEnvironment() });
}

/** `up --yes` asks nobody, so its preview, half of the time of an `up` with nothing to do, is left out. */
export function withoutUnseenPreview(args: readonly string[]): readonly string[] {
  const has = (...names: string[]): boolean => args.some((arg) => names.includes(arg.split("=", 1)[0] ?? ""));
  const unseen = args[0] === "up" && has("--yes", "-y") && !has("--skip-preview", "-f", "--plan", "--strict", "--help");
  return unseen ? [...args, "--skip-preview"] : args;
}

/** The stack's outputs, secret ones in clear: never to be printed whole. */
export async function stackOutputs(): Promise<unknown> {
  const argv = ["pulumi", "-C", PROJECT, "stack", "output", "--json", "--show-secrets"];
  return JSON.parse(await run(argv, { env: pulumiEnvironment() }));
}

const stateSchema = z.object({
  deployment: z.object({
    pending_operations: z.array(z.object({ type: z.string(), resource: z.object({ urn: z.string() }) })).nullish(),
  }),
});

/** Operations that a killed run had begun, in words; none where there is no stack yet. */
export async function pendingOperations(): Promise<string[]> {
  if (!existsSync(PASSPHRASE)) return [];
  const state = await run(["pulumi", "-C", PROJECT, "stack", "export"], {
    env: pulumiEnvironment(),
    timeout: SHORT_MS,
  });
  const { deployment } = stateSchema.parse(JSON.parse(state));
  return (deployment.pending_operations ?? []).map(({ type, resource }) => `${type} ${resource.urn}`);
}

/** Takes away the lock of a killed run, as the documentation says. */
export async function unlock(): Promise<void> {
  const locks = join(BACKEND, ".pulumi/locks");
  if (existsSync(locks) && readdirSync(locks, { recursive: true }).some((name) => String(name).endsWith(".json"))) {
    await attempt(["pulumi", "-C", PROJECT, "cancel", "--yes"], { env: pulumiEnvironment(), timeout: SHORT_MS });
  }
}

/** Makes the lab's stack; the passphrase is written last and says that it is there. */
async function initStack(): Promise<void> {
  mkdirSync(BACKEND, { recursive: true });
  const draft = `${PASSPHRASE}.draft`;
  if (!existsSync(draft)) writeFileSync(draft, randomBytes(24).toString("base64url"), { mode: 0o600 });
  const env = { ...pulumiEnvironment(), PULUMI_CONFIG_PASSPHRASE_FILE: draft };
  await run(["pulumi", "-C", PROJECT, "stack", "select", "--create", STACK], { env });
  renameSync(draft, PASSPHRASE);
}

/** Ends what a killed `lab up` left running on the stack, and takes away its lock, so that the next run can begin. */
export async function recoverStack(): Promise<void> {
  const orphans = labProcesses()
    .filter(({ owner }) => owner === "pulumi")
    .map(({ pid }) => pid);
  if (orphans.length > 0) {
    say("  ending an interrupted run of Pulumi");
    orphans.forEach((pid) => {
      signal(pid, "SIGINT"); // it then writes down what it has made
    });
    if (!(await gone(orphans, INTERRUPT_MS))) await kill(orphans);
  }
  await unlock();
  // What was being made when it was killed is not in the stack; the program removes it before it makes it anew.
  if ((await pendingOperations()).length > 0) {
    await run(["pulumi", "-C", PROJECT, "refresh", "--yes", "--skip-preview", "--clear-pending-creates"], {
      env: pulumiEnvironment(),
    });
  }
}
