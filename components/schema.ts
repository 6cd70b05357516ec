import * as net from "node:net";
import * as path from "node:path";
import { z } from "zod";
import { type BenchmarkMetric, benchmarkMetrics, type BenchmarkTool, benchmarkTools } from "./benchmark";
import { codes } from "./preflight/codes";

/**
 * The shape of the stack's configuration, with the invariants that need one value alone.
 * What relates several values to each other is in settings.ts.
 *
 * `example` is what an error message offers in `pulumi config set`.
 */
/** `pulumi config set --path` stores a fraction as a string, so a string that spells a number is one. */
export const numeric = <T extends z.ZodType>(type: T) =>
  z.preprocess(
    (value) =>
      typeof value === "string" && value.trim() !== "" && !Number.isNaN(Number(value)) ? Number(value) : value,
    type,
  );

const port = numeric(z.int().min(1).max(65535));
const positive = numeric(z.int().min(1));
const minutes = numeric(
  z
    .number()
    .gt(0)
    .max(24 * 60),
);

/** One spelling of each address: they are compared as text, here and on the nodes. */
function canonical(address: string): string {
  return net.isIPv6(address) && !address.includes("%") ? new URL(`http://[${address}]`).hostname.slice(1, -1) : address;
}

/** An address that other nodes can reach. */
export const ipAddress = z
  .string()
  .refine((value) => net.isIP(value) !== 0 && !value.includes("%"), "not an IP address")
  .overwrite(canonical)
  .refine(
    (value) => !/^(127\.|::1$|0\.0\.0\.0$|::$)/.test(value),
    "a loopback or wildcard address reaches no other node",
  )
  // fe80::/10
  .refine(
    (value) => !/^fe[89ab][0-9a-f]:[0-9a-f:]*$/.test(value),
    "a link-local address means nothing without its interface: give the interface one of its own in netplan (addresses: [fd00::12/64]) and set that here",
  );

const interfaceName = z
  .string()
  .regex(
    /^[A-Za-z0-9_.-]{1,15}$/,
    "not one network interface name (Gloo takes neither a list, nor a pattern such as ^lo)",
  )
  .refine((value) => value !== "lo", "the loopback interface reaches no other node");

const environmentName = z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, "not an environment variable name");
const text = z.preprocess(
  (value) => (typeof value === "number" || typeof value === "boolean" ? String(value) : value),
  z
    .string()
    .refine((value) => !value.includes("\0"), "holds a NUL character, which no program argument can")
    .refine(
      (value) => value === value.normalize("NFC"),
      "not in Unicode's composed form (NFC), and Docker's plugin would change it",
    ),
);

export const fabricSchema = z.strictObject({
  interface: interfaceName.meta({
    description: "Network interface of this node on the private link. Names differ between nodes.",
    example: "enp1s0f0np0",
  }),
  address: ipAddress.meta({
    description: "Address of this node on that interface.",
    example: "192.168.200.12",
  }),
  hcas: z
    .array(z.string().regex(/^[A-Za-z0-9_]+$/, "not an RDMA device name"))
    .default([])
    .meta({
      description: "RDMA devices of the cable, both twins (`ibdev2netdev` lists them). Empty: NCCL chooses.",
      example: '["rocep1s0f0","roceP2p1s0f0"]',
    }),
});

export const nodeSchema = z.strictObject({
  name: z
    .string()
    .regex(/^[a-z][a-z0-9-]{0,30}$/, "not a name of lower-case letters, digits and hyphens, starting with a letter")
    .meta({ description: "Name of the node in this stack.", example: "spark-1" }),
  host: z
    .string()
    .regex(/^[A-Za-z0-9_.:][A-Za-z0-9_.:-]*$/, "not a host name or address")
    .meta({
      description: "Address or name that SSH connects to (from `via`, where that is set).",
      example: "10.1.230.180",
    }),
  port: port.default(22).meta({ description: "SSH port.", example: "22" }),
  user: z
    .string()
    .regex(/^[A-Za-z_][A-Za-z0-9_.-]*$/, "not a user name")
    .meta({ description: "SSH user, a member of the docker group.", example: "aurora" }),
  hostKey: z
    .string()
    .regex(
      /^(ssh-ed25519|ecdsa-sha2-nistp(256|384|521)|ssh-rsa) [A-Za-z0-9+/]+={0,3}$/,
      "not a public host key of the form `ecdsa-sha2-nistp256 AAAA…`",
    )
    .meta({
      description:
        "Public SSH host key: what `ssh-keyscan -t ecdsa HOST` prints, without the host at its front. Of a host with several keys it must be the ECDSA one, which is what steps are shown first.",
      example: "ecdsa-sha2-nistp256 AAAA…",
    }),
  via: z
    .string()
    .optional()
    .meta({ description: "Name of the node to jump through. Default: none, reached directly.", example: "spark-1" }),
  fabric: fabricSchema.meta({ description: "The private link between the nodes." }),
});

export const scenarioSchema = z.strictObject({
  name: z
    .string()
    .regex(/^[a-z][a-z0-9-]*$/, "not a name of lower-case letters, digits and hyphens")
    .meta({ description: "Name of the scenario in the output.", example: "single-stream" }),
  requests: positive.meta({
    description:
      "Requests of one repeat, at each level of concurrency: at least twice as many as are under way at once, and rounded up to a multiple of that.",
    example: "8",
  }),
  concurrency: z
    .array(positive)
    .min(1, "no level given")
    .refine((levels) => levels.every((level, index) => index === 0 || level > (levels[index - 1] ?? 0)), "not rising")
    .meta({
      description:
        "Requests under way at once, level by level, rising. No further level is measured once the output tokens a second grew by less than 5 %, or `ttftLimitMilliseconds` was passed.",
      example: "[1, 2, 4, 8]",
    }),
  inputTokens: positive.meta({ description: "Tokens of a prompt that are its own.", example: "1024" }),
  prefixTokens: numeric(z.int().min(0)).default(0).meta({
    description: "Tokens before them that all prompts share, which the prefix cache may hold.",
    example: "2048",
  }),
  outputTokens: numeric(z.int().min(2, "TPOT needs at least 2 output tokens")).meta({
    description: "Tokens generated a request (the end-of-text token is ignored).",
    example: "128",
  }),
  ttftLimitMilliseconds: numeric(z.number().gt(0)).optional().meta({
    description:
      "Bound of the time to first token, 99th percentile, milliseconds: a level beyond it is the last. Default: none.",
    example: "2000",
  }),
});

const sourceSchema = z.strictObject({
  kind: z.enum(["hub", "path", "operator"]).meta({
    description:
      "Where the head has the model from: `hub`: downloaded once from Hugging Face's hub, or one like it; `path`: it lies in `model.path` there; `operator`: sent from a folder on this machine. All other nodes get it from the head over the fabric. Without a source it lies in `model.path` on every node.",
    example: "hub",
  }),
  repository: z
    .string()
    .regex(/^[\w.-]+(\/[\w.-]+)?$/, "not a repository of the form `owner/name`")
    .optional()
    .meta({ description: "Repository on the hub.", example: "Qwen/Qwen3.5-122B-A10B-FP8" }),
  revision: z
    .string()
    .regex(/^[^\s\0-][^\s\0]*$/, "empty, holds blanks, or starts with a hyphen")
    .default("main")
    .meta({
      description:
        "Branch, tag or commit on the hub. A branch is resolved once, when the model is fetched; the output `weights` names the commit.",
      example: "main",
    }),
  endpoint: z
    .url({ protocol: /^https?$/, error: "not the URL of a hub (https://…)" })
    .optional()
    .meta({
      description: "Another hub, e.g. a mirror. Default: the hub client's own.",
      example: "https://hub.example",
    }),
  folder: z
    .string()
    .min(1)
    .optional()
    .meta({ description: "Folder on this machine, for `operator` (`~/` is the home).", example: "~/models/my-model" }),
  timeoutMinutes: numeric(
    z
      .number()
      .gt(0)
      .max(7 * 24 * 60),
  )
    .default(24 * 60)
    .meta({ description: "Limit of the download, and of the copies, minutes.", example: "1440" }),
});

const thresholdSchema = z
  .strictObject({
    scenario: z.string().meta({ description: "Name of a scenario.", example: "single-stream" }),
    concurrency: positive.optional().meta({
      description: "One of its levels. Default: its peak, the level with the most output tokens a second.",
      example: "1",
    }),
    metric: z
      .enum(Object.keys(benchmarkMetrics) as [BenchmarkMetric, ...BenchmarkMetric[]])
      .meta({ description: "The figure: the median of the repeats.", example: "outputTokensPerSecond" }),
    atLeast: numeric(z.number().gt(0))
      .optional()
      .meta({ description: "Lower bound, in the metric's unit.", example: "20" }),
    atMost: numeric(z.number().gt(0))
      .optional()
      .meta({ description: "Upper bound, in the metric's unit.", example: "500" }),
    maxWorsePercent: numeric(z.number().min(0)).optional().meta({
      description:
        "How much worse, percent, the best repeat may be than the worst repeat of the last five runs that kept their thresholds; not held until there are three. Noise alone is seldom beyond the worst of them.",
      example: "10",
    }),
  })
  .refine(
    ({ atLeast, atMost, maxWorsePercent }) => [atLeast, atMost, maxWorsePercent].some((bound) => bound !== undefined),
    "no bound: atLeast, atMost or maxWorsePercent",
  );

/**
 * What is measured where nobody chose. By the engine's own tool what people with Sparks ask: one stream, how fast a prompt is
 * read, how many at once, and what the prefix cache gives. By `llama-benchy` what its community compares.
 */
export const suites: Readonly<Record<BenchmarkTool, z.output<typeof scenarioSchema>[]>> = {
  "vllm-bench": [
    { name: "single-stream", requests: 4, concurrency: [1], inputTokens: 1024, prefixTokens: 0, outputTokens: 128 },
    { name: "prefill", requests: 4, concurrency: [1], inputTokens: 2048, prefixTokens: 0, outputTokens: 2 },
    { name: "prefill-long", requests: 2, concurrency: [1], inputTokens: 16384, prefixTokens: 0, outputTokens: 2 },
    { name: "load", requests: 4, concurrency: [1, 2, 4, 8, 16], inputTokens: 1024, prefixTokens: 0, outputTokens: 128 },
    { name: "shared-prefix", requests: 8, concurrency: [4], inputTokens: 128, prefixTokens: 2048, outputTokens: 128 },
  ],
  "llama-benchy": [
    {
      name: "pp2048-tg128",
      requests: 4,
      concurrency: [1, 2, 4],
      inputTokens: 2048,
      prefixTokens: 0,
      outputTokens: 128,
    },
  ],
};

/** Codes of preflight that stop a deployment. */
const errorCodes = Object.entries(codes).flatMap(([code, { severity }]) => (severity === "error" ? [code] : []));

export const schema = z.strictObject({
  nodes: z
    .array(nodeSchema)
    .min(1, "no node given")
    // Type alone: at least one is there, which `min` has checked.
    .meta({ description: "The Sparks; the first is the head, which serves.", example: "[…]" }) as unknown as z.ZodType<
    [NodeSettings, ...NodeSettings[]]
  >,
  ssh: z
    .strictObject({
      privateKeyPath: z.string().optional().meta({
        description:
          "Private key file on this machine, without a passphrase (`~/` is the home). Default: the SSH agent.",
        example: "~/.ssh/id_ed25519",
      }),
      connectTimeoutSeconds: positive
        .default(15)
        .meta({ description: "Limit of one connection attempt, seconds.", example: "15" }),
      connectAttempts: positive
        .default(3)
        .meta({ description: "Connection attempts before a step fails.", example: "3" }),
    })
    .prefault({}),
  accelerator: z.enum(["gb10", "cpu"]).default("gb10").meta({
    description: "`gb10`: GPU and RDMA are given to the containers. `cpu`: neither (the lab).",
    example: "gb10",
  }),
  image: z
    .string()
    .regex(
      /^([a-z0-9][a-z0-9._:/-]*@)?sha256:[0-9a-f]{64}$/,
      "not an image pinned by digest: a tag can move, and differ between nodes (`docker buildx imagetools inspect IMAGE` prints the digest)",
    )
    .meta({
      description:
        "Serving image with vLLM and Ray, pinned by digest; or the id (`sha256:…`) of one that was built or loaded on the head.",
      example: "registry.example/vllm@sha256:…",
    }),
  registry: z
    .strictObject({
      username: text
        .refine((value) => value !== "", "empty")
        .optional()
        .meta({
          description:
            "Account for the registry of `image`, with the secret `registryPassword`. Default: what the head's own `docker login` left, or none.",
          example: "$oauthtoken",
        }),
    })
    .prefault({}),
  model: z.strictObject({
    path: z
      .string()
      .regex(/^\/[^\0]+$/, "not an absolute path (a relative one is taken for a hub repository by the engine)")
      // As Docker spells it when it is read back.
      .overwrite((value) => path.posix.normalize(value).replace(/\/+$/, ""))
      .refine((value) => value !== "", "the root is no model's folder")
      .meta({
        description: "Folder of the model (config.json and weights), the same on every node.",
        example: "/home/aurora/models/my-model",
      }),
    source: sourceSchema.optional(),
    name: z
      .string()
      .regex(/^[^\s\0-][^\s\0]*$/, "empty, holds blanks, or starts with a hyphen")
      .meta({ description: "Model id that clients ask for.", example: "my-model" }),
  }),
  server: z
    .strictObject({
      port: port.default(8000).meta({ description: "Port of the OpenAI API on the head.", example: "8000" }),
      pipelineParallelSize: positive.default(1).meta({
        description:
          "Stages that the layers are split into. The rest of the nodes' GPUs, nodes / stages, share each layer (tensor parallel), which must divide the model's heads: 3 nodes often need 3 stages.",
        example: "1",
      }),
      maxModelLen: positive
        .optional()
        .meta({ description: "Context length, tokens. Default: the model's own.", example: "65536" }),
      gpuMemoryUtilization: numeric(z.number().gt(0).max(1)).optional().meta({
        description: "Share of the unified memory for the engine, 0 to 1. Default: the engine's.",
        example: "0.85",
      }),
      maxNumSeqs: positive
        .optional()
        .meta({ description: "Sequences in a batch. Default: the engine's.", example: "4" }),
      maxNumBatchedTokens: positive
        .optional()
        .meta({ description: "Tokens in a batch. Default: the engine's.", example: "16384" }),
      reasoningParser: text
        .default("qwen3")
        .meta({ description: "vLLM's parser of the thinking part; empty: off.", example: "qwen3" }),
      toolCallParser: text
        .default("qwen3_coder")
        .meta({ description: "vLLM's parser of tool calls; empty: off.", example: "qwen3_coder" }),
      prefixCaching: z
        .boolean()
        .default(true)
        .meta({ description: "Reuse of the KV cache between requests.", example: "true" }),
      extraArgs: z
        .array(
          text.refine(
            (value) => value !== "",
            "empty: Docker's plugin takes no empty argument; join it to its option: --option=",
          ),
        )
        .default([])
        .meta({
          description: "Further arguments of `vllm serve`, one a list entry, passed on byte for byte.",
          example: '["--enforce-eager"]',
        }),
      environment: z
        .record(environmentName, text)
        .default({})
        .meta({ description: "Further environment variables of every rank.", example: '{"NCCL_DEBUG":"INFO"}' }),
      loadTimeoutMinutes: minutes.default(40).meta({ description: "Limit of the model load, minutes.", example: "40" }),
    })
    .prefault({}),
  fabric: z
    .strictObject({
      minimumGBps: numeric(z.number().gt(0)).optional().meta({
        description:
          "Bound of the all-reduce between the ranks, bus bandwidth in 10^9 bytes a second; below it the deployment stops before the model is loaded. Two Sparks with one cable reach about 20. Default: none.",
        example: "10",
      }),
    })
    .prefault({}),
  keepImages: z.boolean().default(false).meta({
    description:
      "Leave the image on the nodes when the deployment is destroyed, so that the next one need not copy it again.",
    example: "true",
  }),
  preflight: z
    .strictObject({
      allow: z.array(z.enum(errorCodes)).default([]).meta({
        description:
          "Codes of problems that are to be warnings, not errors (docs/troubleshooting.md lists them). For what you know better.",
        example: '["driver-unequal"]',
      }),
      imageGB: numeric(z.number().min(0)).default(40).meta({
        description:
          "Room that the image takes on the disk of Docker's images, packed and unpacked, 10^9 bytes. Not asked for where the image is there already.",
        example: "40",
      }),
    })
    .prefault({}),
  benchmark: z
    .strictObject({
      enabled: z.boolean().default(true).meta({ description: "Measure the server once it serves.", example: "true" }),
      timeoutMinutes: minutes.default(30).meta({ description: "Limit of the whole run, minutes.", example: "30" }),
      repeats: numeric(z.int().min(1).max(20)).default(3).meta({
        description: "How often each level is measured. Figures are the median, beside the lowest and the highest.",
        example: "3",
      }),
      tool: z.enum(benchmarkTools).default("vllm-bench").meta({
        description:
          "What makes the load. `vllm-bench`: the engine's own `vllm bench serve`, over completions. `llama-benchy`: over chat completions; what is measured is by default what its community compares, pp2048 and tg128 at 1, 2 and 4 requests at once.",
        example: "llama-benchy",
      }),
      scenarios: z.array(scenarioSchema).min(1, "no scenario given").default(suites["vllm-bench"]).meta({
        description:
          "What is measured, in this order. Default: those of the tool's suite that fit `server.maxModelLen`.",
        example: "[…]",
      }),
      thresholds: z.array(thresholdSchema).default([]).meta({
        description: "Bounds that the figures are held against once the server serves.",
        example: "[…]",
      }),
      keepEarlier: z.boolean().default(false).meta({
        description:
          "Leave the figures of earlier runs on the head when the deployment is destroyed, in `~/.dgx-spark-serving-STACK-benchmarks.jsonl`, so that the next one is compared with them.",
        example: "true",
      }),
      onBreach: z.enum(["fail", "warn"]).default("fail").meta({
        description: "What a threshold that is not kept does: the update fails, or warns. The server stays up.",
        example: "warn",
      }),
    })
    .prefault({}),
});

export type Settings = z.infer<typeof schema>;
export type NodeSettings = z.infer<typeof nodeSchema>;
export type Scenario = z.infer<typeof scenarioSchema>;
export type Accelerator = Settings["accelerator"];
