// Search by name, operator, class or shape. All words must be found; `op:`, `class:`, `name:`, `shape:`,
// `dtype:` and `error` look in one place only. A module that is found stands for what is beneath it.

import * as format from "../format";
import type { Graph } from "./graph";
import type { Item, Tree } from "./tree";

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
  if (item.node < 0) {
    return {
      name: item.path.toLowerCase(), op: "", class: item.cls.toLowerCase(), shape: "", dtype: "", kernel: "", file: "",
    };
  }
  const node = graph.nodes[item.node];
  const values = [...node.outputs, ...node.inputs].map((v) => graph.values[v]);
  return {
    name: `${node.name} ${item.path}`.toLowerCase(),
    op: `${node.op} ${node.target}`.toLowerCase(),
    class: item.cls.toLowerCase(),
    shape: values.map((v) => format.shape(v.shape)).join(" "),
    dtype: values.map((v) => v.dtype).join(" "),
    kernel: node.kernels.map((k) => graph.kernels[k].op).join(" "),
    file: node.source.toLowerCase(),
  };
}
