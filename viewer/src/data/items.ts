// The tree that a person opens and closes. Its leaves are the nodes; its branches are *calls* of modules
// (a module called twice stands twice), so that every branch is one stretch of the order of execution
// and every sum over it is a difference of two running sums. Repeats are folded, long lists are cut up.

import type { Graph } from "./graph";
import { Hash } from "./hash";

export type ItemKind = "root" | "phase" | "module" | "fold" | "group" | "node";

export interface Item {
  id: number;
  kind: ItemKind;
  parent: Item | null;
  children: Item[];
  /** The stretch of nodes beneath it, by position, both ends included. */
  first: number;
  last: number;
  label: string;
  cls: string;
  path: string;
  /** Which call of the module this is, from 1; 0 where it is called once. */
  call: number;
  /** The position of the node, or -1. */
  node: number;
  hash: number;
}

export interface Tree {
  root: Item;
  /** By id: parents stand before their children. */
  items: Item[];
  /** The leaf of every node. */
  leaf: Item[];
}

const DEEPEST = 40;
/** A list longer than this is cut into groups of `GROUP`. */
const LONGEST = 120;
const GROUP = 40;

export function makeItem(kind: ItemKind, first: number, last: number, label: string): Item {
  return {
    id: -1, kind, parent: null, children: [], first, last, label,
    cls: "", path: "", call: 0, node: -1, hash: 0,
  };
}

/** The tree of a graph. Only items whose nodes have the same marks are folded. */
export function buildTree(graph: Graph, mark: (node: number) => string = () => ""): Tree {
  const cuts = new Cuts();
  let root = grow(graph, cuts);
  for (let pass = 0; pass < 8 && cuts.find(graph, root); pass++) root = grow(graph, cuts);
  numberCalls(root);
  simplify(root);
  fold(graph, root, mark);
  cutLong(graph, root);
  return index(graph, root);
}

/** Places where a module ends and is called again at once, so that the scopes alone do not show it. */
class Cuts {
  private at = new Map<string, Set<number>>();

  has(path: string, node: number): boolean {
    return this.at.get(path)?.has(node) ?? false;
  }

  /** Look for calls that run into one another; true when new ones were found. */
  find(graph: Graph, root: Item): boolean {
    const runs = new Map<string, number>();
    walk(root, (item) => {
      if (item.kind === "module") runs.set(item.path, (runs.get(item.path) ?? 0) + 1);
    });
    let found = false;
    walk(root, (item) => {
      if (item.kind !== "module") return true;
      const calls = (graph.scopes.get(item.path)?.calls ?? 0) / (runs.get(item.path) ?? 1);
      const length = (item.last - item.first + 1) / calls;
      if (calls < 2 || !Number.isInteger(calls) || !Number.isInteger(length)) return true;
      if (!periodic(graph, item, length)) return true;
      const places = this.at.get(item.path) ?? new Set();
      for (let i = item.first + length; i <= item.last; i += length) places.add(i);
      this.at.set(item.path, places);
      found = true;
      return false;
    });
    return found;
  }
}

function periodic(graph: Graph, item: Item, length: number): boolean {
  for (let i = item.first + length; i <= item.last; i++) {
    const a = graph.nodes[i];
    const b = graph.nodes[i - length];
    if (a.op !== b.op || a.scope !== b.scope) return false;
  }
  return true;
}

function grow(graph: Graph, cuts: Cuts): Item {
  const count = graph.nodes.length;
  const root = makeItem("root", 0, count - 1, "");
  root.cls = graph.scopes.get("")?.cls ?? "";
  const phased = new Set(graph.nodes.map((n) => n.phase)).size > 1;
  const paths = new Map<string, string[]>();
  const stack: { key: string; item: Item }[] = [{ key: "", item: root }];
  for (let i = 0; i < count; i++) {
    const node = graph.nodes[i];
    let chain = paths.get(node.scope);
    if (!chain) paths.set(node.scope, (chain = called(graph, node.scope)));
    const keys = phased ? [`\u0000${node.phase}`, ...chain] : chain;
    let depth = 0;
    while (
      depth < keys.length && depth + 1 < stack.length &&
      stack[depth + 1].key === keys[depth] && !cuts.has(keys[depth], i)
    ) depth++;
    stack.length = depth + 1;
    for (; depth < keys.length; depth++) {
      const item = branch(graph, keys[depth], depth ? keys[depth - 1] : "", i);
      adopt(stack[depth].item, item);
      stack.push({ key: keys[depth], item });
    }
    const leaf = makeItem("node", i, i, shortName(node));
    leaf.node = i;
    adopt(stack[stack.length - 1].item, leaf);
    for (const entry of stack) entry.item.last = i;
  }
  return root;
}

/** The name without the path of the module that it stands in. */
function shortName(node: { name: string; scope: string; op: string }): string {
  const inside = node.scope && node.name.startsWith(`${node.scope}.`);
  return (inside ? node.name.slice(node.scope.length + 1) : node.name) || node.op;
}

function branch(graph: Graph, key: string, above: string, at: number): Item {
  if (key.startsWith("\u0000")) return makeItem("phase", at, at, key.slice(1));
  const inside = above && !above.startsWith("\u0000") && key.startsWith(above + ".");
  const item = makeItem("module", at, at, inside ? key.slice(above.length + 1) : key);
  item.path = key;
  item.cls = graph.scopes.get(key)?.cls ?? "";
  return item;
}

/** The paths from below the root down to `scope`, without those that only hold others (module lists). */
function called(graph: Graph, scope: string): string[] {
  const found: string[] = [];
  for (let end = scope.indexOf("."); scope && found.length < DEEPEST; end = scope.indexOf(".", end + 1)) {
    const path = end < 0 ? scope : scope.slice(0, end);
    const known = graph.scopes.get(path);
    if (path === scope || !known || known.calls > 0) found.push(path);
    if (end < 0) break;
  }
  return found;
}

export function adopt(parent: Item, child: Item): void {
  child.parent = parent;
  parent.children.push(child);
}

/** Visit top-down; `visit` returning false keeps out of what lies beneath. */
export function walk(item: Item, visit: (item: Item) => boolean | void): void {
  if (visit(item) === false) return;
  for (const child of item.children) walk(child, visit);
}

function numberCalls(root: Item): void {
  const calls = new Map<string, Item[]>();
  walk(root, (item) => {
    if (item.kind !== "module") return;
    const same = calls.get(item.path);
    if (same) same.push(item);
    else calls.set(item.path, [item]);
  });
  for (const same of calls.values()) {
    if (same.length > 1) same.forEach((item, i) => (item.call = i + 1));
  }
}

/** A module that is a single node is that node, under the module's name. */
function simplify(item: Item): void {
  item.children.forEach((child, i) => {
    simplify(child);
    const only = child.children[0];
    if (child.kind !== "module" || child.children.length !== 1 || only.kind !== "node") return;
    only.label = only.path ? `${child.label}.${only.label}` : child.label;
    only.path ||= child.path;
    only.cls ||= child.cls;
    only.call ||= child.call;
    only.parent = item;
    item.children[i] = only;
  });
}

function cutLong(graph: Graph, item: Item): void {
  const longest = item.kind === "fold" ? LONGEST * 4 : LONGEST;
  while (item.children.length > longest) {
    const groups: Item[] = [];
    for (let i = 0; i < item.children.length; i += GROUP) {
      const part = item.children.slice(i, i + GROUP);
      const group = makeItem("group", part[0].first, part[part.length - 1].last, "");
      group.label = graph.numbers(group.first, group.last);
      group.parent = item;
      for (const child of part) adopt(group, child);
      groups.push(group);
    }
    item.children = groups;
  }
  for (const child of item.children) cutLong(graph, child);
}

function index(graph: Graph, root: Item): Tree {
  const items: Item[] = [];
  const leaf: Item[] = new Array(graph.nodes.length);
  walk(root, (item) => {
    item.id = items.length;
    items.push(item);
    if (item.node >= 0) leaf[item.node] = item;
  });
  return { root, items, leaf };
}

// Repeats: children of one parent that are the same in structure, shape and cost and follow one another are
// folded into one item, "× 12". A pattern of several children can repeat, too (five local layers and a
// global one). What stands side by side (the three projections of an attention) is not a repeat unless
// there are many of them (experts).

const LONGEST_PATTERN = 8;

function fold(graph: Graph, root: Item, mark: (node: number) => string): void {
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
function span(first: string, last: string): string {
  const a = /^(.*?)(\d+)(?:–\d+)?$/.exec(first);
  const b = /^(.*?)(?:\d+–)?(\d+)$/.exec(last);
  if (a && b && a[1] === b[1]) return `${a[1]}${a[2]}–${b[2]}`;
  return first === last ? first : `${first} … ${last}`;
}
