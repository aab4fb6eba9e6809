// The columns of the table, and its rows as CSV.

import type { App } from "../app";
import type { Item } from "../data/tree";
import * as format from "../format";

export interface Column {
  name: string;
  key: string;
  /** In pixels; the names take what is left. */
  width: number;
  /** For sorting; text sorts upwards, figures downwards. */
  value: (app: App, item: Item) => number | string;
  text: (app: App, item: Item) => string;
}

const figure = (name: string, key: string, width: number, value: (app: App, item: Item) => number, text: (value: number) => string): Column => ({
  name, key, width, value, text: (app, item) => {
    const amount = value(app, item);
    return amount ? text(amount) : "";
  },
});

export const COLUMNS: Column[] = [
  { name: "Name", key: "name", width: 0, value: (_, i) => i.path || i.label, text: (_, i) => nameOf(i) },
  figure("Time", "time", 74, (app, i) => app.costs.item("time", i), format.seconds),
  figure("FLOPs", "flops", 82, (app, i) => app.costs.item("flops", i), (v) => format.count(v, "").replace(/B$/, "G").replace(/([A-Za-z])$/, " $1")),
  figure("Bytes", "bytes", 84, (app, i) => app.costs.item("bytes", i), format.size),
  figure("Parameters", "parameters", 84, (app, i) => app.costs.parameterCount(i), (v) => format.count(v)),
  figure("Intensity", "intensity", 72, (app, i) => app.costs.intensity(i) ?? 0, format.intensity),
  figure("Memory", "memory", 84, (app, i) => app.costs.item("memory", i), format.size),
  { name: "Class or operator", key: "kind", width: 150, value: (app, i) => kindOf(app, i), text: kindOf },
  { name: "Output", key: "output", width: 140, value: (app, i) => outputOf(app, i), text: outputOf },
];

/** Time is a column where a device is chosen. */
export function columnsOf(app: App): Column[] {
  return app.costs.total("time") > 0 ? COLUMNS : COLUMNS.filter((c) => c.key !== "time");
}

/** Items as lines of plain figures. */
export function csv(app: App, items: Item[]): string {
  const columns = columnsOf(app);
  const quote = (cell: string): string => (/[",\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
  // A cell that begins like a formula would be run by a spreadsheet.
  const safe = (cell: string): string => quote(/^[=+\-@\t]/.test(cell) ? `'${cell}` : cell);
  const line = (item: Item): string =>
    columns.map((c) => {
      const value = c.value(app, item);
      return typeof value === "number" ? String(value) : safe(value);
    }).join(",");
  return [columns.map((c) => c.key).join(","), ...items.map(line)].join("\n") + "\n";
}

function nameOf(item: Item): string {
  if (item.node < 0) return item.label + (item.call ? ` (call ${item.call})` : "");
  return item.label;
}

function kindOf(app: App, item: Item): string {
  return item.node >= 0 ? app.model.graph.nodes[item.node].op : item.cls;
}

function outputOf(app: App, item: Item): string {
  const { graph } = app.model;
  const value = graph.nodes[item.last]?.outputs[0];
  return value === undefined ? "" : format.shape(graph.values[value].shape);
}
