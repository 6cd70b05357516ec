/** A value of the configuration: Pulumi hands objects, lists, numbers and booleans over as JSON, and strings as they are. */
export function parseValue(value: string): unknown {
  if (!/^\s*[[{]|^(true|false)$/.test(value)) return value;
  try {
    return JSON.parse(value);
  } catch {
    return value;
  }
}
