import { defineConfig } from "vitest/config";

const minute = 60_000;

// `unit` needs nothing but Node; `remote` runs the scripts of a Spark on this machine; `lab` drives two virtual Sparks.
export default defineConfig({
  test: {
    // Of the lab there is one a machine, and its cases build on each other.
    fileParallelism: !process.argv.includes("lab"),
    // Also on two cores: the tests of the gates wait more than they compute.
    maxWorkers: 2,
    projects: [
      { test: { name: "unit", include: ["test/unit/**/*.test.ts"], testTimeout: 3 * minute } },
      { test: { name: "remote", include: ["test/remote/**/*.test.ts"], testTimeout: 3 * minute } },
      { test: { name: "lab", include: ["test/lab/**/*.test.ts"], testTimeout: 15 * minute, hookTimeout: 40 * minute } },
    ],
  },
});
