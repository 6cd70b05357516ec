import { join } from "node:path";

import { Command, InvalidArgumentError } from "commander";

import { shellLine } from "../../components/quote";
import { limitCpus } from "./cgroups";
import { chaos, type ChaosOptions } from "./chaos/run";
import { SSH_CONFIG } from "./keys";
import { knownNodes } from "./hosts";
import { down, hostsDown, hostsUp, leftovers, removeSurplus } from "./lab";
import { setRate } from "./links";
import { lock } from "./lock";
import { REPOSITORY } from "./paths";
import { say } from "./progress";
import { PROJECT, STACK } from "./project";
import { pulumi, requireProject } from "./pulumi";
import { LabError, passThrough } from "./run";
import { status } from "./status";
import { MAX_NODES } from "./topology";
import { up } from "./up";

interface NodesOption {
  nodes?: number;
}

/** Pulumi's commands that change the stack. */
const CHANGING = ["up", "update", "refresh", "destroy", "import", "state", "watch"];

const NODES = ["--nodes <N>", `how many, 1 to ${MAX_NODES} (default: as many as there are, else 2)`] as const;

function nodeCount(text: string): number {
  const count = Number(text);
  if (!Number.isInteger(count) || count < 1 || count > MAX_NODES) {
    throw new InvalidArgumentError(`Give a whole number from 1 to ${MAX_NODES}.`);
  }
  return count;
}

function wholeNumber(text: string): number {
  const number = Number(text);
  if (!Number.isInteger(number) || number < 0 || number >= 2 ** 31) {
    throw new InvalidArgumentError(`Give a whole number from 0 to ${2 ** 31 - 1}.`);
  }
  return number;
}

async function removeLab(): Promise<void> {
  await lock();
  const had = (await leftovers()).length > 0;
  await down();
  say(had ? "The lab is gone." : "There was no lab.");
}

async function ssh(name: string, argv: string[]): Promise<void> {
  const names = knownNodes().map((node) => node.name);
  if (!names.includes(name)) {
    throw new LabError(
      names.length === 0
        ? "There is no lab here. Start it: scripts/lab up"
        : `No node ${name}: there is ${names.join(", ")}`,
    );
  }
  process.exitCode = await passThrough([
    "ssh",
    "-F",
    SSH_CONFIG,
    name,
    ...(argv.length > 0 ? ["--", shellLine(argv)] : []),
  ]);
}

const program = new Command("lab")
  .description("Virtual DGX Sparks on this machine, and the program deployed on them")
  .enablePositionalOptions();

program
  .command("up")
  .description("start the Sparks, deploy the program, show an answer and the benchmark's figures")
  .option(...NODES, nodeCount)
  .action(async ({ nodes }: NodesOption) => {
    await lock();
    process.exitCode = await up(nodes);
  });
program.command("down").description("remove the lab, whatever state it is in; the cache stays").action(removeLab);
program
  .command("status")
  .description("show what runs; exit code 1 when a part is down")
  .action(async () => {
    const { text, well } = await status();
    process.stdout.write(`${text}\n`);
    if (!well) process.exitCode = 1;
  });

const hosts = program.command("hosts").description("the Sparks alone, without the program");
hosts
  .command("up")
  .description("start or mend Sparks, network and registry")
  .option(...NODES, nodeCount)
  .action(async ({ nodes }: NodesOption) => {
    await lock();
    await removeSurplus(await hostsUp(nodes));
  });
hosts
  .command("down")
  .description("switch the Sparks off; disks and stack stay for the next `hosts up`")
  .action(async () => {
    await lock();
    await hostsDown();
  });

program
  .command("rate <link> <megabits>")
  .description(
    'limit a link, each way: "fabric" of every Spark, or "management", the head\'s to the outside; "off" ends it',
  )
  .action(async (link: string, megabits: string) => {
    if (link !== "fabric" && link !== "management") throw new LabError(`No link ${link}: there is fabric, management`);
    const rate = megabits === "off" ? undefined : Number(megabits);
    if (rate !== undefined && !(rate > 0)) throw new LabError(`${megabits}: give megabits a second, or off`);
    const nodes = knownNodes();
    for (const node of link === "fabric" ? nodes : nodes.slice(0, 1)) await setRate(node, link, rate);
  });

program
  .command("cpus <cores>")
  .description('limit each Spark to a share of this machine\'s cores, such as 0.2, until `hosts down`; "off" ends it')
  .action((given: string) => {
    const cores = given === "off" ? undefined : Number(given);
    // The kernel takes no less than a hundredth of a core.
    if (cores !== undefined && !(cores >= 0.01 && Number.isFinite(cores)))
      throw new LabError(`${given}: give cores, at least 0.01, or off`);
    limitCpus(
      knownNodes().map(({ name }) => name),
      cores,
    );
  });

program
  .command("ssh <node> [command...]")
  .description("log in as aurora, or run one command there, its words kept as they are")
  .passThroughOptions()
  .allowUnknownOption()
  .helpOption(false)
  .action(async (node: string) => {
    await ssh(node, process.argv.slice(process.argv.indexOf("ssh") + 2));
  });
program
  .command("pulumi [arguments...]")
  .description("any Pulumi command on the lab's stack")
  .passThroughOptions()
  .allowUnknownOption()
  .helpOption(false)
  .action(async () => {
    const args = process.argv.slice(process.argv.indexOf("pulumi") + 1);
    // A second one would take the first for an orphan, and end it.
    if (CHANGING.includes(args[0] ?? "")) await lock();
    process.exitCode = await pulumi(args);
  });

program
  .command("preflight [arguments...]")
  .description("scripts/preflight on the lab's stack")
  .passThroughOptions()
  .allowUnknownOption()
  .helpOption(false)
  .action(async () => {
    const args = process.argv.slice(process.argv.indexOf("preflight") + 1);
    if (args[0] !== "explain" && !args.some((each) => ["--help", "-h"].includes(each))) requireProject();
    const own = ["--cwd", PROJECT, "--stack", STACK];
    process.exitCode = await passThrough([join(REPOSITORY, "scripts/preflight"), ...own, ...args]);
  });

program
  .command("chaos")
  .description(
    "random faults during up, change and destroy; exit code 1 unless the deployment converges after each round",
  )
  .option("--kills <N>", "how many operations are disturbed", wholeNumber, 100)
  .option("--seed <S>", "whole number that decides all that is left to chance (default: a random one)", wholeNumber)
  .option("--log <FILE>", "file that gets what is shown as JSON lines, appended")
  .action(async (options: ChaosOptions) => {
    await lock();
    process.exitCode = await chaos(options);
  });

program.parseAsync().catch((error: unknown) => {
  if (!(error instanceof LabError)) throw error;
  say(`lab: ${error.message}`);
  process.exitCode = 1;
});
