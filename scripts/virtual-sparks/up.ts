import { hostsUp, removeSurplus } from "./lab";
import { elapsed, say } from "./progress";
import { pulumi, recoverStack, stackOutputs } from "./pulumi";
import { benchmarkTable, chat, parseOutputs } from "./result";

/** From nothing, or from any state, to a served and measured model; returns the exit code. */
export async function up(count?: number): Promise<number> {
  const start = performance.now();
  const nodes = await hostsUp(count);
  await recoverStack();
  const code = await pulumi(["up", "--yes", "--color", process.stdout.isTTY ? "auto" : "never"]);
  if (code !== 0) {
    say("lab: `pulumi up` failed, see above. Repeat with scripts/lab up; scripts/lab ssh spark-1 looks inside.");
    return code;
  }
  await removeSurplus(nodes); // only now: the program had containers on them
  const outputs = parseOutputs(await stackOutputs());
  process.stdout.write(
    [
      `\nendpoint:  ${outputs.endpoint}`,
      `model:     ${outputs.model}`,
      "API key:   scripts/lab pulumi stack output apiKey --show-secrets",
      `\n${await chat(outputs)}`,
      `\n${benchmarkTable(outputs)}\n\n`,
    ].join("\n"),
  );
  say(`lab up: ${elapsed(start)}`);
  return 0;
}
