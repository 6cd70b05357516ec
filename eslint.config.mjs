import js from "@eslint/js";
import pulumi from "@pulumi/eslint-plugin";
import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["node_modules", "vitest.config.mts"] },
  js.configs.recommended,
  {
    files: ["**/*.ts"],
    extends: [...tseslint.configs.strictTypeChecked],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    plugins: { "@pulumi": pulumi },
    rules: {
      "@pulumi/no-output-in-template-literal": "error",
      "@pulumi/no-output-instance-in-template-literal": "error",
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true, allowBoolean: true }],
      // A Pulumi resource is made for its effect.
      "no-new": "off",
      // The configuration is read once, in components/settings.ts, never from the environment.
      "no-restricted-properties": [
        "error",
        {
          object: "process",
          property: "env",
          message: "Read the Pulumi configuration instead (components/settings.ts).",
        },
      ],
    },
  },
  {
    // The lab and the tests are programs of their own: they hand an environment to the tools they start.
    files: ["scripts/**/*.ts", "test/**/*.ts"],
    rules: { "no-restricted-properties": "off" },
  },
);
