import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";

import { run } from "../run";

/** What serving never opens, relative to the root. The image's own imports (smoke.py) prove that nothing else is missed. */
const UNUSED = [
  "usr/share/doc",
  "usr/share/info",
  "usr/share/locale",
  "usr/share/man",
  "var/cache/apt",
  "var/lib/apt/lists",
  "var/log",
];

/** The same, relative to the packages. */
const UNUSED_PACKAGES = [
  "cv2", // pictures and films
  "opencv_python_headless.libs",
  "mistral_common/data", // the tokenizers of Mistral's models
  "numba/tests",
  "pip",
  "pycountry/locales",
  "ray/dashboard/client",
  "ray/jars", // Ray for Java
  "torch/bin/protoc",
  "torch/include",
  "torch/lib/libtorch_cuda_linalg.so", // opened by the first linear algebra on a GPU
];

/** Files of the virtual environment's lib: of Intel's OpenMP, everything but the CPU runtime. */
const UNUSED_OPENMP = /^lib(omptarget|pi_|ur_|sycl)|\.(dbg|a|spv|bc)$|^(cmake|clang|pkgconfig)$/;

/** Libraries with debug information or large symbol tables. Those in `*.libs` are left: they were rewritten by patchelf, and strip breaks them. */
const LARGE = [
  "llvmlite/binding/libllvmlite.so",
  "ray/_raylet.so",
  "ray/core/src/ray/gcs/gcs_server",
  "ray/core/src/ray/raylet/raylet",
  "torch/lib/libtorch_cpu.so",
  "torch/lib/libtorch_python.so",
];

/** Takes out of an image's tree what serving does not use. */
export async function trim(root: string, environment: string, packages: string, log: string): Promise<void> {
  const remove = (path: string): void => {
    rmSync(path, { recursive: true, force: true });
  };
  UNUSED.forEach((path) => {
    remove(join(root, path));
  });
  UNUSED_PACKAGES.forEach((path) => {
    remove(join(packages, path));
  });
  readdirSync(join(environment, "lib"))
    .filter((name) => UNUSED_OPENMP.test(name))
    .forEach((name) => {
      remove(join(environment, "lib", name));
    });
  const kernels = readdirSync(join(packages, "vllm")).filter((name) => /^_C.*\.so$/.test(name));
  const large = [...LARGE, ...kernels.map((name) => join("vllm", name))].map((path) => join(packages, path));
  await run(["strip", "--strip-unneeded", ...large], { log });
}
