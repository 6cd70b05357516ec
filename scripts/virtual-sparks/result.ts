import { z } from "zod";

import { LabError } from "./run";
import { runSchema } from "../../components/benchmark";
import { renderFigures } from "../../components/report/terminal";

const outputsSchema = z.object({
  endpoint: z.string(),
  model: z.string(),
  apiKey: z.string(),
  benchmark: runSchema.optional(),
});

/** The stack's outputs that `lab up` shows. */
export type Outputs = z.infer<typeof outputsSchema>;

const answerSchema = z.object({
  choices: z
    .array(
      z.object({
        message: z.object({
          content: z.string().nullish(),
          reasoning: z.string().nullish(),
          reasoning_content: z.string().nullish(), // as older servers call it
        }),
      }),
    )
    .min(1),
});

const QUESTION = "Reply with one short sentence: who are you?";
const ANSWER_MS = 120_000;
const ANSWER_TOKENS = 48;

/** Checks what the program exported. */
export function parseOutputs(outputs: unknown): Outputs {
  const parsed = outputsSchema.safeParse(outputs);
  if (!parsed.success) throw new LabError(`The stack's outputs are not as expected:\n${z.prettifyError(parsed.error)}`);
  return parsed.data;
}

/** Asks the served model one question and returns question and answer as text. */
export async function chat({ endpoint, model, apiKey }: Outputs): Promise<string> {
  const url = `${endpoint}/chat/completions`;
  const body = { model, max_tokens: ANSWER_TOKENS, messages: [{ role: "user", content: QUESTION }] };
  const response = await fetch(url, {
    method: "POST",
    headers: { "Content-Type": "application/json", Authorization: `Bearer ${apiKey}` },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(ANSWER_MS),
  }).catch((error: unknown) => {
    // "fetch failed" says less than what it was for.
    const { message } = error instanceof Error && error.cause instanceof Error ? error.cause : (error as Error);
    throw new LabError(
      `${url} does not answer: ${message}\n` +
        "Pulumi compares settings with what it made. This looks at what is really there, and makes anew what stopped:\n" +
        "  ./scripts/lab pulumi up --refresh",
    );
  });
  const text = await response.text();
  if (!response.ok) throw new LabError(`${url} answers ${response.status}: ${text}`);
  const [choice] = answerSchema.parse(JSON.parse(text)).choices;
  const message = choice?.message;
  return [
    `question:  ${QUESTION}`,
    `reasoning: ${printable(message?.reasoning ?? message?.reasoning_content)}`,
    `answer:    ${printable(message?.content)}`,
  ].join("\n");
}

/** The benchmark's figures as a table. */
export function benchmarkTable({ benchmark }: Outputs): string {
  return benchmark === undefined ? "no figures: benchmark.enabled is false" : renderFigures(benchmark);
}

/** A model with random weights says anything: control characters must not reach the terminal. */
function printable(text: string | null | undefined): string {
  return text === null || text === undefined || text === "" ? "(none)" : JSON.stringify(text);
}
