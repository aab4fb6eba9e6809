// Repeats: children of one parent that are the same in structure, shape and cost and follow one another are
// folded into one item, "× 12". A pattern of several children can repeat, too (five local layers and a
// global one). What stands side by side (the three projections of an attention) is not a repeat unless
// there are many of them (experts).

import { Hash } from "./hash";
import type { Graph } from "./graph";
import { adopt, type Item, makeItem } from "./items";

const LONGEST_PATTERN = 8;

export function fold(graph: Graph, root: Item, mark: (node: number) => string): void {
  hash(graph, root, mark);
  foldChildren(graph, root);
}

/** The hash of a leaf is its operator and kernels; of a branch, its children and the edges between its nodes. */
function hash(graph: Graph, item: Item, mark: (node: number) => string): void {
  const h = new Hash();
  if (item.node >= 0) {
    const node = graph.nodes[item.node];
    h.text(node.op).text(item.cls).text(node.arguments).text(node.error).text(mark(item.node));
    for (const k of node.kernels) h.number(k);
    for (const v of node.outputs) h.text(graph.values[v].dtype).text(graph.values[v].shape.join());
  } else {
    h.text(item.cls).text(item.kind);
    for (const child of item.children) {
      hash(graph, child, mark);
      h.hash(child.hash);
    }
    for (let i = item.first; i <= item.last; i++) {
      for (const source of graph.sources[i]) h.number(source >= item.first ? i - source : -1);
    }
  }
  item.hash = h.end();
}

function foldChildren(graph: Graph, item: Item): void {
  const folded: Item[] = [];
  for (let i = 0; i < item.children.length; ) {
    const [pattern, times] = repeatAt(graph, item.children, i);
    if (times > 1) {
      folded.push(foldOf(item, item.children.slice(i, i + pattern * times), pattern));
    } else {
      folded.push(item.children[i]);
    }
    i += pattern * times;
  }
  item.children = folded;
  for (const child of folded) {
    // The members of a fold are not looked at as one list again.
    for (const branch of child.kind === "fold" ? child.children : [child]) foldChildren(graph, branch);
  }
}

/** The longest repeat that starts at child `at`: how many children the pattern has and how often it stands there. */
function repeatAt(graph: Graph, children: Item[], at: number): [number, number] {
  let best: [number, number] = [1, 1];
  for (let size = 1; size <= LONGEST_PATTERN && at + 2 * size <= children.length; size++) {
    let times = 1;
    while (same(children, at, at + times * size, size)) times++;
    if (times * size <= best[0] * best[1] || times < 2) continue;
    const enough = needed(graph, children, at, size, times);
    if (times >= enough) best = [size, times];
  }
  return best;
}

function same(children: Item[], a: number, b: number, size: number): boolean {
  if (b + size > children.length) return false;
  for (let i = 0; i < size; i++) if (children[a + i].hash !== children[b + i].hash) return false;
  return true;
}

/** How often a pattern must repeat to be worth a fold. */
function needed(graph: Graph, children: Item[], at: number, size: number, times: number): number {
  const modules = children.slice(at, at + size).some((c) => c.node < 0);
  for (let k = 1; k < times; k++) {
    const first = children[at + k * size].first;
    const last = children[at + k * size + size - 1].last;
    const before = children[at + (k - 1) * size].first;
    if (!reads(graph, first, last, before)) return modules ? 4 : Infinity;
  }
  if (size > 1) return 3;
  return modules ? 2 : 3;
}

/** Whether a node of the stretch reads what was made from `before` up to its beginning. */
function reads(graph: Graph, first: number, last: number, before: number): boolean {
  for (let i = first; i <= last; i++) {
    if (graph.sources[i].some((s) => s < first && s >= before)) return true;
  }
  return false;
}

function foldOf(parent: Item, children: Item[], pattern: number): Item {
  const members: Item[] = [];
  for (let i = 0; i < children.length; i += pattern) {
    if (pattern === 1) {
      members.push(children[i]);
      continue;
    }
    const part = children.slice(i, i + pattern);
    const group = makeItem("group", part[0].first, part[pattern - 1].last, span(part[0].label, part[pattern - 1].label));
    for (const child of part) adopt(group, child);
    members.push(group);
  }
  const last = members[members.length - 1];
  const item = makeItem("fold", members[0].first, last.last, span(members[0].label, last.label));
  item.cls = pattern === 1 ? members[0].cls : [...new Set(children.slice(0, pattern).map((c) => c.cls || c.label))].join(" · ");
  item.path = members[0].path;
  item.parent = parent;
  for (const member of members) adopt(item, member);
  return item;
}

/** "layer.0" and "layer.11" are "layer.0–11"; "layer.0–5" and "layer.30–35" are "layer.0–35". */
export function span(first: string, last: string): string {
  const a = /^(.*?)(\d+)(?:–\d+)?$/.exec(first);
  const b = /^(.*?)(?:\d+–)?(\d+)$/.exec(last);
  if (a && b && a[1] === b[1]) return `${a[1]}${a[2]}–${b[2]}`;
  return first === last ? first : `${first} … ${last}`;
}
