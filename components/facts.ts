import { z } from "zod";

/** What `facts.py` reports of a machine. `null`: not known there. */
const factsSchema = z.object({
  hostname: z.string(),
  architecture: z.string(),
  operatingSystem: z.string().nullable(),
  kernel: z.string(),
  cpus: z.int(),
  memoryTotalBytes: z.int().nullable(),
  dockerVersion: z.string().nullable(),
  gpuName: z.string().nullable(),
  gpuDriverVersion: z.string().nullable(),
});

export type NodeFacts = z.infer<typeof factsSchema>;

/** Reads the JSON that `facts.py` prints. */
export function parseFacts(text: string): NodeFacts {
  return factsSchema.parse(JSON.parse(text));
}
