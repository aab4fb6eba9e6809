// Which nodes are asked for: by operator, bottleneck, dtype, fragment, phase, and by cost above a share of
// the whole.

import type { Costs, Measure } from "./costs";
import type { Graph } from "./graph";

export type Facet = "op" | "bound" | "dtype" | "fragment" | "phase";

export interface Filter {
  facets: Partial<Record<Facet, string[]>>;
  measure: Measure;
  /** A node must have at least this share of the model's total. */
  least: number;
}

export const NO_FILTER: Filter = { facets: {}, measure: "flops", least: 0 };

export function facetOf(graph: Graph, facet: Facet, node: number, boundOf: (node: number) => string): string {
  const n = graph.nodes[node];
  if (facet === "op") return n.op;
  if (facet === "bound") return boundOf(node);
  if (facet === "fragment") return String(n.fragment + 1);
  if (facet === "phase") return n.phase;
  const value = n.outputs[0] ?? n.inputs[0];
  return value === undefined ? "none" : graph.values[value].dtype;
}

/** The choices of a facet and how many nodes have each, the most frequent first. */
export function choices(graph: Graph, facet: Facet, boundOf: (node: number) => string): [string, number][] {
  const counts = new Map<string, number>();
  for (let i = 0; i < graph.nodes.length; i++) {
    const value = facetOf(graph, facet, i, boundOf);
    counts.set(value, (counts.get(value) ?? 0) + 1);
  }
  return [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
}

/** The nodes that pass, or null where nothing is asked for. */
export function passing(
  graph: Graph, costs: Costs, filter: Filter, boundOf: (node: number) => string,
): number[] | null {
  const asked = (Object.entries(filter.facets) as [Facet, string[]][]).filter(([, values]) => values.length);
  if (!asked.length && filter.least <= 0) return null;
  const sets = asked.map(([facet, values]): [Facet, Set<string>] => [facet, new Set(values)]);
  const floor = filter.least * costs.total(filter.measure);
  return graph.nodes
    .map((n) => n.index)
    .filter(
      (i) => sets.every(([facet, values]) => values.has(facetOf(graph, facet, i, boundOf))) &&
        (filter.least <= 0 || (costs.node(filter.measure, i) >= floor && floor > 0))
    );
}
