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
  const pulumi = (...args: string[]) => execFileSync("pulumi", [...on, ...args], { encoding: "utf8", stdio: "pipe" });
  const urns = resourcesOn(node, JSON.parse(pulumi("stack", "export")));
  if (urns.length === 0) {
    console.log(`There is nothing of ${node} in the stack.`);
    return;
  }
  console.log(`${yes ? "Forgetting" : "With --yes the stack forgets"}, and leaves on ${node} as they are:`);
  for (const urn of urns) {
    console.log(`  ${urn.slice(urn.lastIndexOf("::") + 2)}`);
    if (yes) pulumi("state", "delete", "--yes", urn);
  }
  if (!yes) process.exitCode = 1;
}

new Command("forget-node")
  .description(
    "Takes what is on a node that is gone for good out of a stack, without touching the node. " +
      "First take the node out of `nodes` and run `pulumi up`: it does all the rest, and then fails at that node.",
  )
  .argument("<node>", "name of the node")
  .option("-s, --stack <name>", "the stack (default: the one selected)")
  .option("-C, --cwd <folder>", "folder with Pulumi.yaml", ".")
  .option("--yes", "do it; without, it is shown what would be forgotten")
  .action((node: string, options: Options) => {
    try {
      forget(node, options);
    } catch (error) {
      // Pulumi says what is in the way: there is no such stack, or something that is still wanted depends on the node.
      const said = error instanceof Error && "stderr" in error ? String(error.stderr).trim() : String(error);
      process.stderr.write(`forget-node: ${said}\n`);
      process.exitCode = 2;
    }
  })
  .parse();
