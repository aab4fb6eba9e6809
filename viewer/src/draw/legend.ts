// The entries of the legend: every category that the graph has, with its nodes.

import * as format from "../format";
import { type Category, CHANGES, NOTHING } from "./categories";
import type { Colours } from "./colours";

export interface LegendEntry {
  name: string;
  colour: string;
  mark: string;
  /** How many nodes, and their share of the whole. */
  note: string;
  nodes: number[];
}

export function legendEntries(colours: Colours): LegendEntry[] {
  return colours.mode === "fusion" ? rules(colours) : categories(colours);
}

function categories(colours: Colours): LegendEntry[] {
  const { costs, theme } = colours;
  const found = new Map<string, { kind: Category; nodes: number[]; time: number }>();
  colours.graph.nodes.forEach((node, i) => {
    if (node.kind === "input" || node.kind === "output") return;
    const kind = colours.nodeKind(i);
    const entry = found.get(kind.name) ?? { kind, nodes: [], time: 0 };
    entry.nodes.push(i);
    entry.time += costs.node("time", i);
    found.set(kind.name, entry);
  });
  const whole = costs.total("time") || 1;
  const order = (e: { kind: Category; time: number }): number => (e.kind === NOTHING || e.kind === CHANGES.same ? -1 : e.time);
  return [...found.values()]
    .sort((a, b) => order(b) - order(a))
    .slice(0, 14)
    .map(({ kind, nodes, time }) => ({
      name: kind.name,
      colour: theme.dark ? kind.dark : kind.light,
      mark: kind.mark,
      note: time ? `${format.percent(time / whole)} of time` : format.plural(nodes.length, "node"),
      nodes,
    }));
}

/** In place of hundreds of subgraphs, the rules that made them; neighbours differ in colour. */
function rules({ fusion, theme }: Colours): LegendEntry[] {
  const found = new Map<string, { count: number; nodes: number[] }>();
  for (const part of fusion?.subgraphs ?? []) {
    if (part.rule === "view" || part.rule === "boundary") continue;
    const entry = found.get(part.rule) ?? { count: 0, nodes: [] };
    entry.count++;
    entry.nodes.push(...part.nodes);
    found.set(part.rule, entry);
  }
  return [...found]
    .sort((a, b) => b[1].count - a[1].count)
    .map(([name, { count, nodes }]) => ({ name, colour: theme.none, mark: "", note: format.plural(count, "subgraph"), nodes }));
}
