import * as pulumi from "@pulumi/pulumi";
import { parseValue } from "./configValue";
import { renderProblems } from "./problems";
import type { Settings } from "./schema";
import { checkConfiguration } from "./settings";

/** What the program needs beyond the settings: secrets, which stay wrapped. */
export interface Loaded {
  settings: Settings;
  /** Private key for SSH; undefined: the agent. */
  privateKey: pulumi.Output<string> | undefined;
  /** Hugging Face token; undefined: the engine is kept offline. */
  huggingFaceToken: pulumi.Output<string> | undefined;
  /** Password of `registry.username`; undefined: without a login. */
  registryPassword: pulumi.Output<string> | undefined;
}

/**
 * Reads the stack's configuration, once.
 *
 * @throws pulumi.RunError (shown without a stack trace) that names every problem
 */
export function loadSettings(): Loaded {
  const config = new pulumi.Config();
  const prefix = `${config.name}:`;
  const own = Object.entries(pulumi.runtime.allConfig()).filter(([key]) => key.startsWith(prefix));
  const raw = Object.fromEntries(own.map(([key, value]) => [key.slice(prefix.length), parseValue(value)]));
  const checked = checkConfiguration(raw);
  if ("problems" in checked) throw new pulumi.RunError(renderProblems(checked.problems));
  const { settings, privateKey } = checked;
  return {
    settings,
    privateKey: privateKey === undefined ? undefined : pulumi.secret(privateKey),
    huggingFaceToken: config.getSecret("huggingFaceToken"),
    registryPassword: config.getSecret("registryPassword"),
  };
}
