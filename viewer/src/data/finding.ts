// Finding nodes: by a filter (operator, bottleneck, dtype, fragment, phase, cost above a share of the whole), and by words:
// name, operator, class or shape. All words must be found; `op:`, `class:`, `name:`, `shape:`, `dtype:`, `kernel:` and
// `file:` look in one place only. A module that is found stands for what is beneath it.

import * as format from "../format";
import type { Costs, Measure } from "./costs";
import type { Graph } from "./graph";
import { type Item, phaseOf, type Tree } from "./tree";

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

type Field = "name" | "op" | "class" | "shape" | "dtype" | "kernel" | "file";
const FIELDS: Field[] = ["name", "op", "class", "shape", "dtype", "kernel", "file"];

export function find(graph: Graph, tree: Tree, query: string): Item[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean).map(parse);
  if (!words.length) return [];
  const found: Item[] = [];
  for (const item of tree.items) {
    if (item.kind === "root" || item.kind === "fold" || item.kind === "group") continue;
    const fields = describe(graph, item);
    const all = words.every(({ field, text }) =>
      field ? fields[field].includes(text) : FIELDS.slice(0, 5).some((f) => fields[f].includes(text)),
    );
    if (all) found.push(item);
  }
  return found.sort((a, b) => a.first - b.first || a.id - b.id);
}

function parse(word: string): { field: Field | null; text: string } {
  const colon = word.indexOf(":");
  const field = FIELDS.find((f) => f === word.slice(0, colon));
  return field && colon > 0 ? { field, text: plain(word.slice(colon + 1)) } : { field: null, text: plain(word) };
}

/** "1x3x224x224", "1,3,224,224" and "[1, 3, 224, 224]" are one shape. */
function plain(text: string): string {
  const shape = text.replace(/[[\]()]/g, "");
  return /^\d+([x×*,]\d+)+$/.test(shape) ? shape.replace(/[x*,]/g, "×") : text;
}

function describe(graph: Graph, item: Item): Record<Field, string> {
  const phase = phaseOf(item);
  const path = (phase ? `${phase} of ${item.path}` : item.path).toLowerCase(); // as hot spots are called
  if (item.node < 0) {
    return {
      name: path, op: "", class: item.cls.toLowerCase(), shape: "", dtype: "", kernel: "", file: "",
    };
  }
  const node = graph.nodes[item.node];
  const values = [...node.outputs, ...node.inputs].map((v) => graph.values[v]);
  return {
    name: `${node.name.toLowerCase()} ${path}`,
    op: `${node.op} ${node.target}`.toLowerCase(),
    class: item.cls.toLowerCase(),
    shape: values.map((v) => format.shape(v.shape)).join(" "),
    dtype: values.map((v) => v.dtype).join(" "),
    kernel: node.kernels.map((k) => graph.kernels[k].op).join(" "),
    file: node.source.toLowerCase(),
  };
}
