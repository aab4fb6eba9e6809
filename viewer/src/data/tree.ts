// The tree that a person opens and closes, as `opgraph.analysis.tree` made and folded it. Its leaves are the nodes;
// its branches are *calls* of modules, so that every branch is one interval of the order of execution and every sum
// over it is a difference of two running sums. The members of a fold are equal, place by place.

import { clean, numbers, type TreeJson } from "./document";
import type { Graph } from "./graph";

export type ItemKind = "root" | "phase" | "module" | "fold" | "group" | "node";

/** One of the folds around an item: the nodes of one repetition, how many there are, and which of them it is in. */
interface Turn {
  nodes: number;
  count: number;
  member: number;
  /** The key of the fold. */
  key: number;
}

/** Nodes in the order of execution, by position, both ends included. */
export interface Interval {
  first: number;
  last: number;
  /** How many members a fold has; 1 of all else. */
  count?: number;
  turns?: Turn[];
}

/** What a person sees of the nodes in its interval. */
export interface Item extends Interval {
  id: number;
  /** What its state is kept under: itself, or its twin in the first members of the folds around it. */
  key: number;
  kind: ItemKind;
  parent: Item | null;
  children: Item[];
  label: string;
  cls: string;
  path: string;
  /** Which call of the module this is, from 1; 0 where it is called once. */
  call: number;
  /** The position of the node, or -1. */
  node: number;
  count: number;
  turns: Turn[];
  /** The shape of the first result of a module, or "". */
  output: string;
}

/** Which folds, by their ids, show each of their members. */
export type Apart = Pick<ReadonlySet<number>, "has">;

export interface Tree {
  root: Item;
  /** By id: parents stand before their children. */
  items: Item[];
  /** The leaf of every node. */
  leaf: Item[];
}

/** The positions of the nodes in an interval. */
export function nodesIn({ first, last }: Interval): number[] {
  return Array.from({ length: last - first + 1 }, (_, i) => first + i);
}

/** Of a training step, in which phase an item is, where that is not the forward; else "". */
export function phaseOf(item: Item): string {
  for (let at = item.parent; at; at = at.parent) {
    if (at.kind === "phase" && at.label !== "forward") return at.label;
  }
  return "";
}

const KINDS: Record<string, ItemKind> = { r: "root", p: "phase", m: "module", f: "fold", g: "group", n: "node" };
/** A list longer than this is drawn in groups of `GROUP`. */
const LONGEST = 120;
const GROUP = 40;
/** So many inputs of one name are drawn as one. */
const TERMINALS = 5;

/** One list of all nodes, where a tree is not of this graph: the page opens all the same. */
function flat(count: number): TreeJson {
  const kinds = `r${"n".repeat(count)}`;
  return { kinds, counts: [count], labels: [], classes: [], paths: [], calls: [], texts: [] };
}

export function readTree(given: TreeJson, graph: Graph): Tree {
  const fits = given.kinds.split("n").length - 1 === graph.nodes.length;
  const json = fits ? given : flat(graph.nodes.length);
  const texts = json.texts.map((text) => clean(text, 2000));
  const [labels, paths] = [json.labels, json.paths].map(numbers);
  const items: Item[] = [];
  const leaf: Item[] = [];
  const calls = new Map(json.calls);
  const classes = new Map(json.classes);
  const outputs = new Map((json.outputs ?? []).flatMap(([text, ...ids]) => ids.map((id) => [id, text])));
  let branches = 0;
  const read = (parent: Item | null, turns: Turn[], twin: number): Item => {
    const id = items.length;
    const kind = KINDS[json.kinds[id]];
    const first = leaf.length;
    const path = graph.nodes[first]?.scope.slice(0, paths[id]) ?? "";
    const cls = texts[classes.get(id) ?? -1] ?? (path && graph.classes.get(path)) ?? "";
    const item: Item = {
      id, key: id - twin, kind, parent, children: [], first, last: first, cls, path, call: calls.get(id) ?? 0,
      label: texts[labels[id]] ?? graph.nodes[first]?.name ?? "",
      node: kind === "node" ? first : -1, count: 1, turns,
      output: texts[outputs.get(id) ?? -1] ?? "",
    };
    items.push(item);
    if (kind === "node") leaf.push(item);
    else {
      const count = json.counts[branches++];
      if (kind === "fold") item.count = count;
      const start = items.length;
      for (let member = 0; member < count; member++) {
        const turn = { nodes: 0, count, member, key: id - twin };
        const child = kind === "fold"
          ? read(item, [...turns, turn], twin + items.length - start)
          : read(item, turns, twin);
        turn.nodes = child.last - child.first + 1;
        item.children.push(child);
      }
    }
    item.last = leaf.length - 1;
    return item;
  };
  const tree = { root: read(null, [], 0), items, leaf };
  groupTerminals(graph, tree);
  for (const item of [...items]) cutLong(graph, tree, item);
  return tree;
}

/** Put inputs or outputs that stand side by side and are many (a cache of keys and values) into one. */
function groupTerminals(graph: Graph, tree: Tree): void {
  const { root } = tree;
  const children: Item[] = [];
  for (let i = 0; i < root.children.length; ) {
    const kind = graph.nodes[root.children[i].node]?.kind;
    const stem = (item: Item): string => item.label.replace(/[\d.]+$/, "");
    let end = i + 1;
    const alike = (item: Item): boolean =>
      graph.nodes[item.node]?.kind === kind && stem(item) === stem(root.children[i]);
    if (kind === "input" || kind === "output") while (end < root.children.length && alike(root.children[end])) end++;
    const part = root.children.slice(i, end);
    const { label } = part[0];
    children.push(
      ...(part.length < TERMINALS ? part : [group(tree, root, part, stem(part[0]) || label, `${part.length} ${kind}s`)]),
    );
    i = end;
  }
  root.children = children;
}

/** One item in the place of some children of another that stand side by side. */
function group({ items }: Tree, parent: Item, part: Item[], label: string, cls: string): Item {
  const [{ first, turns }, { last }] = [part[0], part[part.length - 1]];
  const made: Item = {
    id: items.length, key: items.length, kind: "group", parent, children: part, first, last, label, cls, path: "", call: 0, node: -1,
    count: 1, turns: parent.kind === "fold" ? parent.turns : turns, output: "",
  };
  items.push(made);
  for (const child of part) child.parent = made;
  return made;
}

/** Put the children of an item that has very many into groups, so that they can be drawn. */
function cutLong(graph: Graph, tree: Tree, item: Item): void {
  while (item.children.length > (item.kind === "fold" ? LONGEST * 4 : LONGEST)) {
    const { children } = item;
    item.children = [];
    for (let i = 0; i < children.length; i += GROUP) {
      const part = children.slice(i, i + GROUP);
      item.children.push(group(tree, item, part, graph.numbers(part[0].first, part[part.length - 1].last), ""));
    }
  }
}

/**
 * Where every repetition of an item begins, and how many nodes each has: those of a fold are its members. In folds
 * whose members are shown `apart` each stands for itself.
 */
export function repetitions(
  { first, last, count: own = 1, turns: all = [] }: Interval, apart?: Apart,
): { starts: number[]; length: number } {
  const turns = apart ? all.filter(({ key }) => !apart.has(key)) : all;
  const length = (last - first + 1) / own;
  let starts = [first];
  for (const { nodes, count, member } of own > 1 ? [...turns, { nodes: length, count: own, member: 0, key: -1 }] : turns) {
    starts = starts.flatMap((start) => Array.from({ length: count }, (_, i) => start + (i - member) * nodes));
  }
  return { starts, length };
}
