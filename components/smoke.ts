import { z } from "zod";

/** What `smoke.py` saw of the server. */
const smokeSchema = z.object({
  /** A request without the key was refused. */
  keyRequired: z.literal(true),
  /** Thinking came in its own field. */
  reasoning: z.boolean(),
  /** A question that calls for a tool was answered by a valid call of it. */
  toolCall: z.boolean(),
  /** Tokens of the chat answer. */
  completionTokens: z.int().positive(),
});

export type Smoke = z.infer<typeof smokeSchema>;

/** Reads the JSON that `smoke.py` prints. */
export function parseSmoke(text: string): Smoke {
  return smokeSchema.parse(JSON.parse(text));
}
