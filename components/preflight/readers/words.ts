/** What a pattern's group holds, the first time that it is found; null: it is not. */
export function wordIn(text: string, pattern: RegExp): string | null {
  return pattern.exec(text)?.[1] ?? null;
}

/** The same as a number, times a unit: 1024 where the text counts kibibytes. */
export function numberIn(text: string, pattern: RegExp, unit = 1): number | null {
  const word = wordIn(text, pattern);
  return word === null ? null : Number(word) * unit;
}
