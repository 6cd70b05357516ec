/** Text that is HTML already: it is not escaped again. */
export class Html {
  constructor(readonly text: string) {}
}

type Value = string | number | Html | readonly Html[];

const entities: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

/** Template tag: what is filled in is escaped, for text and for quoted attributes, unless it is HTML itself. */
export function html(strings: TemplateStringsArray, ...values: Value[]): Html {
  return new Html(strings.map((text, index) => (index === 0 ? text : render(values[index - 1] ?? "") + text)).join(""));
}

function render(value: Value): string {
  if (value instanceof Html) return value.text;
  if (typeof value === "object") return value.map(({ text }) => text).join("\n");
  return String(value).replace(/[&<>"']/g, (character) => entities[character] ?? character);
}
