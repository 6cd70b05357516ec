import { execFileSync } from "node:child_process";
import { Command } from "commander";
import { resourcesOn } from "./resourcesOn";

interface Options {
  stack?: string;
  cwd: string;
  yes?: boolean;
}

function forget(node: string, { stack, cwd, yes }: Options): void {
  const on = ["-C", cwd, ...(stack === undefined ? [] : ["--stack", stack])];
  const pulumi = (...args: string[]) =>
    execFileSync("pulumi", [...on, ...args], { encoding: "utf8", stdio: "pipe", maxBuffer: 1024 ** 3 });
  const remaining = () => resourcesOn(node, JSON.parse(pulumi("stack", "export")));
  const urns = remaining();
  if (urns.length === 0) {
    console.log(`There is nothing of ${node} in the stack.`);
    return;
  }
  const names = urns.map((urn) => `  ${urn.slice(urn.lastIndexOf("::") + 2)}\n`).join("");
  console.log(`${yes ? "The stack forgets" : "With --yes the stack forgets"}, with all that depends on it:\n${names}`);
  if (!yes) {
    process.exitCode = 1;
    return;
  }
  // What depends on it is made anew by the next update, which removes what it finds of ours under the same names.
  for (let [urn] = urns; urn !== undefined; [urn] = remaining()) {
    pulumi("state", "delete", "--yes", "--target-dependents", urn);
  }
  console.log("Now: pulumi up");
}

new Command("forget-node")
  .description(
    "Takes what is on a node that is gone for good out of a stack, without touching any node. " +
      "First take the node out of `nodes`, and afterwards run `pulumi up`.",
  )
  .argument("<node>", "name of the node")
  .option("-s, --stack <name>", "the stack (default: the one selected)")
  .option("-C, --cwd <folder>", "folder with Pulumi.yaml", ".")
  .option("--yes", "do it; without, it is shown what would be forgotten")
  .action((node: string, options: Options) => {
    try {
      forget(node, options);
    } catch (error) {
      // Pulumi says what is in the way, such as that there is no such stack.
      const said = (error instanceof Error && "stderr" in error && String(error.stderr).trim()) || String(error);
      process.stderr.write(`forget-node: ${said}\n`);
      process.exitCode = 2;
    }
  })
  .parse();
