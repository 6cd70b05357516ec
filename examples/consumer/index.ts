import * as command from "@pulumi/command";
import * as pulumi from "@pulumi/pulumi";

// An application beside the serving stack: it takes where the model is and how fast it is from that stack's outputs, and is
// not deployed where it would be too slow.
//
//   pulumi config set serving organization/dgx-spark-serving/dev   # the stack that serves
//   pulumi config set minimumTokensPerSecond 20

/** What is read here of the output `benchmark`. */
interface Benchmark {
  version: number;
  startedAt: string;
  summary: string;
  scenarios: {
    name: string;
    peakConcurrency: number;
    levels: { concurrency: number; outputTokensPerSecond: { median: number; low: number; high: number } }[];
  }[];
}

const config = new pulumi.Config();
const stack = config.require("serving");
const serving = new pulumi.StackReference(stack);
const minimum = config.requireNumber("minimumTokensPerSecond");
const wanted = config.get("scenario") ?? "single-stream";

/**
 * Output tokens a second of the scenario's first level, the one with the fewest requests at once.
 *
 * @throws pulumi.RunError (shown without a stack trace) that says why the application is not deployed
 */
function tokensPerSecond(benchmark: Benchmark | undefined): number {
  if (benchmark === undefined) throw new pulumi.RunError(`not deployed: stack ${stack} has no figures`);
  const { version, scenarios, startedAt, summary } = benchmark;
  if (version !== 1) throw new pulumi.RunError(`not deployed: figures of version ${String(version)}, known here: 1`);
  const found = scenarios.find(({ name }) => name === wanted)?.levels[0]?.outputTokensPerSecond.median;
  if (found === undefined)
    throw new pulumi.RunError(
      `not deployed: no scenario "${wanted}" was measured, only: ${scenarios.map(({ name }) => name).join(", ")}`,
    );
  if (found < minimum)
    throw new pulumi.RunError(
      `not deployed: ${found} tokens/s in "${wanted}", this application needs ${minimum}.\n` +
        `Measured ${startedAt}: ${summary}`,
    );
  return found;
}

export = async () => {
  const benchmark = await serving.getOutputDetails("benchmark");
  const speed = tokensPerSecond(benchmark.value as Benchmark | undefined);
  const [endpoint, model, key] = ["endpoint", "model", "apiKey"].map((name) => serving.requireOutput(name));
  // The application, as small as can be: the settings of any client of the OpenAI API, readable by nobody else.
  const application = new command.local.Command("application", {
    create: "umask 077 && cat > client.env",
    update: "umask 077 && cat > client.env",
    delete: "rm -f client.env",
    stdin: pulumi.interpolate`OPENAI_BASE_URL=${endpoint}\nOPENAI_MODEL=${model}\nOPENAI_API_KEY=${key}\n`,
  });
  return { tokensPerSecond: speed, file: application.id.apply(() => "client.env") };
};
