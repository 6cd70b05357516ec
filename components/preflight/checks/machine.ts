import type { Settings } from "../../schema";
import type { NodeFacts } from "../facts";
import type { NodeProbe } from "../probe";
import { gibibytes, problem, type Problem } from "../problem";

/** TLS and registries bear minutes, logs of two machines are read side by side: half a minute is neither's fault. */
const skewLimitSeconds = 30;

/** Whether the machines are what they should be, and alike. */
export function checkMachines(probes: readonly NodeProbe[], settings: Settings): Problem[] {
  const single = probes.flatMap(({ node, facts }) =>
    facts === null
      ? []
      : [
          ...checkClockAndName(node.name, facts),
          ...(settings.accelerator === "gb10" ? [...checkGpu(node.name, facts), ...checkKernel(node.name, facts)] : []),
        ],
  );
  return [
    ...single,
    ...unequal(probes, "driver-unequal", ({ gpu }) => gpu?.driverVersion ?? null, "driver"),
    ...unequal(probes, "kernel-unequal", ({ kernel }) => kernel, "kernel"),
    // A GB10's is held against what it must be.
    ...(settings.accelerator === "gb10"
      ? []
      : unequal(probes, "architecture-mismatch", ({ architecture }) => architecture, "architecture")),
    ...probes.flatMap(({ node, facts }) => (facts === null ? [] : checkDriver(node.name, facts, settings))),
  ];
}

function checkClockAndName(node: string, facts: NodeFacts): Problem[] {
  const { clockSkewSeconds: skew, hostname, hostnameAddresses, interfaces } = facts;
  const problems: Problem[] = [];
  if (skew !== null && Math.abs(skew) > skewLimitSeconds) {
    const found = `the clock is ${Math.abs(skew)} s ${skew < 0 ? "behind" : "ahead of"} the operator's`;
    problems.push(problem("clock-skew", node, { found, expected: `within ${skewLimitSeconds} s` }));
  }
  if (hostname === null || hostnameAddresses === null) return problems;
  const own = interfaces.flatMap(({ addresses }) => addresses.map(({ address }) => address));
  const elsewhere = hostnameAddresses.filter((address) => !isLoopback(address) && !own.includes(address));
  const mend = `in /etc/hosts there: 127.0.1.1 ${hostname}`;
  if (hostnameAddresses.length === 0) {
    const found = `${hostname} resolves to nothing there`;
    problems.push(problem("hostname-unresolved", node, { found, expected: "an address", mend }));
  } else if (own.length > 0 && elsewhere.length > 0) {
    const found = `${hostname} resolves to ${elsewhere.join(", ")} there, which no interface has`;
    problems.push(
      problem("hostname-elsewhere", node, { found, expected: "an address of its own, or 127.0.1.1", mend }),
    );
  }
  return problems;
}

function isLoopback(address: string): boolean {
  return address.startsWith("127.") || address === "::1" || address.startsWith("fe80:");
}

function checkGpu(node: string, { gpu, architecture, productName, notes }: NodeFacts): Problem[] {
  const problems: Problem[] = [];
  if (gpu === null) {
    const note = notes.find((each) => each.startsWith("the GPU"));
    problems.push(problem("gpu-missing", node, { found: note ?? "no GPU", expected: "NVIDIA GB10" }));
  } else if (gpu.name !== null && !gpu.name.includes("GB10")) {
    const found = `GPU ${gpu.name} in ${productName ?? "a machine that does not say its name"}`;
    problems.push(problem("not-gb10", node, { found, expected: "NVIDIA GB10" }));
  }
  if (architecture !== null && architecture !== "aarch64") {
    problems.push(problem("architecture-mismatch", node, { found: architecture, expected: "aarch64" }));
  }
  return problems;
}

function checkKernel(node: string, { kernel, memory: { cmaTotalBytes, cmaFreeBytes } }: NodeFacts): Problem[] {
  if (cmaTotalBytes === null || cmaFreeBytes === null || cmaFreeBytes <= cmaTotalBytes) return [];
  const found = `CmaFree ${gibibytes(cmaFreeBytes)} of CmaTotal ${gibibytes(cmaTotalBytes)}, kernel ${kernel ?? "unknown"}`;
  return [problem("kernel-holds-memory", node, { found, expected: "no more free than there is" })];
}

function checkDriver(node: string, { gpu }: NodeFacts, { server }: Settings): Problem[] {
  const driver = gpu?.driverVersion;
  // vLLM takes --enforce_eager for --enforce-eager.
  const isEager = server.extraArgs.some((argument) => argument.replaceAll("_", "-") === "--enforce-eager");
  if (!driver?.startsWith("590.") || isEager) return [];
  return [problem("driver-590", node, { found: `driver ${driver}, with CUDA graphs`, expected: "580.x" })];
}

/** One problem for each node that differs from the head in a fact that both know. */
function unequal(
  probes: readonly NodeProbe[],
  code: "driver-unequal" | "kernel-unequal" | "architecture-mismatch",
  pick: (facts: NodeFacts) => string | null,
  what: string,
): Problem[] {
  const known = probes.flatMap(({ node, facts }) => {
    const value = facts === null ? null : pick(facts);
    return value === null ? [] : [{ name: node.name, value }];
  });
  const [first, ...others] = known;
  return others
    .filter(({ value }) => value !== first?.value)
    .map(({ name, value }) =>
      problem(code, name, { found: `${what} ${value}`, expected: `${first?.value ?? ""}, as on ${first?.name ?? ""}` }),
    );
}
