/** Rows of cells, the first row being the header, as aligned text: columns of numbers (or of –, which is none) to the right, others to the left. */
export function table(rows: string[][]): string {
  const [header = [], ...body] = rows;
  const columns = header.map((_, column) => ({
    width: Math.max(...rows.map((row) => row[column]?.length ?? 0)),
    isNumeric: body.every((row) => /^([\d.]+|–)$/.test(row[column] ?? "")),
  }));
  const line = (row: string[]): string =>
    columns
      .map(({ width, isNumeric }, column) => (isNumeric ? row[column]?.padStart(width) : row[column]?.padEnd(width)))
      .join("  ")
      .trimEnd();
  return rows.map(line).join("\n");
}
