// Ranks and x positions of a container's children and of the bends of its edges, by dagre. What is done with them (rows,
// columns, curves) is in `container.ts`.

import dagre from "@dagrejs/dagre";
import { type Link, straighten, type Thing } from "./straighten";
import type { Edge, Spec } from "./spec";

export interface Ranked {
  /** By child: its row and the x of its middle. */
  row: number[];
  x: number[];
  /** The x of the ways in and out. */
  ins: number[];
  outs: number[];
  /** By edge, the x in each row between its ends, and the edge that it shares them with. */
  bends: number[][];
  trunk: number[];
  /** Whether the ways in (out) take the row above (below) those of the children. */
  rows: number;
}

const GAP = 22;
/** Half of what a residual takes beside others: its name stands on it. */
export const RESIDUAL = 31;

export function rank(spec: Spec): Ranked {
  return chain(spec) ?? layered(spec);
}

/** The common case, a plain chain, needs no search. */
function chain(spec: Spec): Ranked | null {
  const n = spec.boxes.length;
  if (spec.ins > 1 || spec.outs > 1) return null;
  for (const e of spec.edges) {
    const from = e.from < 0 ? -1 : e.from;
    const to = e.to < 0 ? n : e.to;
    if (to !== from + 1) return null;
  }
  const width = Math.max(0, ...spec.boxes.map((b) => b.w));
  return {
    row: spec.boxes.map((_, i) => i),
    x: spec.boxes.map(() => width / 2),
    ins: new Array(spec.ins).fill(width / 2),
    outs: new Array(spec.outs).fill(width / 2),
    bends: spec.edges.map(() => []),
    trunk: spec.edges.map((_, i) => i),
    rows: n,
  };
}

function layered(spec: Spec, skipped = leftOut(spec)): Ranked {
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  const count = spec.boxes.length;
  const sparse = spec.edges.length > 400 || count > 60;
  graph.setGraph({ nodesep: GAP, edgesep: 12, ranksep: 10, ranker: sparse ? "tight-tree" : "network-simplex" });
  graph.setDefaultEdgeLabel(() => ({}));
  // Rows, not heights, are asked for: every child is one unit high here.
  spec.boxes.forEach((b, i) => graph.setNode(`n${i}`, { width: b.w, height: 10 }));
  for (let k = 0; k < spec.ins; k++) graph.setNode(`i${k}`, { width: 6, height: 10 });
  for (let k = 0; k < spec.outs; k++) graph.setNode(`o${k}`, { width: 6, height: 10 });
  const ends = (e: { from: number; to: number }): [string, string] => [
    e.from < 0 ? `i${-1 - e.from}` : `n${e.from}`,
    e.to < 0 ? `o${-1 - e.to}` : `n${e.to}`,
  ];
  spec.edges.forEach((e, i) => {
    if (!skipped.has(i)) graph.setEdge(...ends(e), { weight: 2, minlen: 1 }, `e${i}`);
  });
  follow(graph, spec);
  pin(graph, spec);
  dagre.layout(graph);

  const at = (name: string): { x: number; y: number } => graph.node(name) as { x: number; y: number };
  const ys = new Set<number>();
  for (let i = 0; i < count; i++) ys.add(Math.round(at(`n${i}`).y));
  const rows = [...ys].sort((a, b) => a - b);
  const rowOf = new Map(rows.map((y, i) => [y, i]));
  const row = spec.boxes.map((_, i) => rowOf.get(Math.round(at(`n${i}`).y)) ?? 0);
  const first = (i: number): number => (spec.edges[i].from < 0 ? 0 : row[spec.edges[i].from] + 1);
  const last = (i: number): number => (spec.edges[i].to < 0 ? rows.length - 1 : row[spec.edges[i].to] - 1);
  const length = spec.edges.map((_, i) => last(i) - first(i) + 2);
  // Without an edge, its ends may have come to stand the wrong way round.
  if (skipped.size && length.some((l) => l < 1)) return layered(spec, new Set());
  const trunk = trunks(spec, length, skipped);
  const bends = spec.edges.map((e, i) => {
    if (skipped.has(i) || trunk[i] !== i) return [];
    const { points } = graph.edge(
      { v: ends(e)[0], w: ends(e)[1], name: `e${i}` }
    ) as { points: { x: number; y: number }[] };
    return rows.slice(first(i), last(i) + 1).map((y) => xAt(points, y));
  });
  const xs = spec.boxes.map((_, i) => at(`n${i}`).x);
  const ins = Array.from({ length: spec.ins }, (_, k) => at(`i${k}`).x);
  const outs = Array.from({ length: spec.outs }, (_, k) => at(`o${k}`).x);
  const ranked = { row, x: xs, ins, outs, bends, trunk, rows: rows.length };
  align(ranked, spec, length);
  return shifted(ranked, spec);
}

/** Draw chains straight, in the order that dagre found. */
function align(ranked: Ranked, spec: Spec, length: number[]): void {
  // The ways in are the row above all others, the ways out the one below.
  const rows: Thing[][] = Array.from({ length: ranked.rows + 2 }, () => []);
  const thing = (row: number, x: number, half: number, bend: boolean): Thing => {
    const made = { x, half, row: row + 1, above: [], below: [], bend };
    rows[row + 1].push(made);
    return made;
  };
  const boxes = spec.boxes.map((b, i) => thing(ranked.row[i], ranked.x[i], b.w / 2 + GAP / 2, false));
  const ins = ranked.ins.map((x) => thing(-1, x, 10, false));
  const outs = ranked.outs.map((x) => thing(ranked.rows, x, 10, false));
  const join = (above: Thing, below: Thing, weight: number): void => {
    (above.below as Link[]).push({ to: below, weight });
    (below.above as Link[]).push({ to: above, weight });
  };
  const chains = spec.edges.map((e, i) => {
    const top = e.from < 0 ? 0 : ranked.row[e.from] + 1;
    return ranked.bends[i].map((x, k) => thing(top + k, x, e.residual ? RESIDUAL : 8, true));
  });
  const alongTrunk = (i: number): Thing[] =>
    shared(spec, ranked.trunk[i], i, chains[ranked.trunk[i]], length[i] - 1);
  spec.edges.forEach((e, i) => {
    const from = e.from < 0 ? ins[-1 - e.from] : boxes[e.from];
    const to = e.to < 0 ? outs[-1 - e.to] : boxes[e.to];
    const along = alongTrunk(i);
    if (along.length !== length[i] - 1) return;
    const whole = [from, ...along, to];
    // A branch adds only its own end to the trunk, or its beginning.
    for (let k = 1; k < whole.length; k++) {
      const [a, b] = [whole[k - 1], whole[k]];
      if (ranked.trunk[i] !== i && a.bend && b.bend) continue;
      join(a, b, a.bend && b.bend ? 8 : a.bend || b.bend ? 1 : 2);
    }
  });
  for (const row of rows) row.sort((a, b) => a.x - b.x);
  straighten(rows, chains);
  close(rows.flat());
  ranked.x = boxes.map((t) => t.x);
  ranked.ins = ins.map((t) => t.x);
  ranked.outs = outs.map((t) => t.x);
  ranked.bends = spec.edges.map((_, i) => alongTrunk(i).map((t) => t.x));
}

/** What begins nowhere and is closed stands below what is open and ran before it, not beside its whole height. */
function follow(graph: InstanceType<typeof dagre.graphlib.Graph>, spec: Spec): void {
  const into = new Set(spec.edges.map((e) => e.to));
  spec.boxes.forEach((box, i) => {
    const before = spec.boxes.slice(0, i).findLastIndex((b) => b.spec >= 0);
    if (box.spec < 0 && !into.has(i) && before >= 0) graph.setEdge(`n${before}`, `n${i}`, { weight: 0, minlen: 1 }, "follow");
  });
}

/** Ways in belong above everything and ways out below: strong edges from one source and to one sink. */
function pin(graph: InstanceType<typeof dagre.graphlib.Graph>, spec: Spec): void {
  const into = new Set(spec.edges.filter((e) => e.to >= 0).map((e) => e.to));
  const from = new Set(spec.edges.filter((e) => e.from >= 0).map((e) => e.from));
  const tie = (a: string, b: string, weight: number) =>
    graph.setEdge(a, b, { weight, minlen: 1 }, "pin");
  if (spec.ins) {
    graph.setNode("source", { width: 1, height: 1 });
    for (let k = 0; k < spec.ins; k++) tie("source", `i${k}`, 100);
    spec.boxes.forEach((_, i) => {
      if (!into.has(i)) graph.setEdge("source", `n${i}`, { weight: 0, minlen: 2 }, "pin");
    });
  }
  if (spec.outs) {
    graph.setNode("sink", { width: 1, height: 1 });
    for (let k = 0; k < spec.outs; k++) tie(`o${k}`, "sink", 100);
    spec.boxes.forEach((_, i) => {
      if (!from.has(i)) graph.setEdge(`n${i}`, "sink", { weight: 0, minlen: 2 }, "pin");
    });
  }
}

/** Close what is empty from top to bottom. */
function close(things: Thing[]): void {
  things.sort((a, b) => a.x - a.half - (b.x - b.half));
  let reach = -Infinity;
  let shift = 0;
  for (const thing of things) {
    const left = thing.x - thing.half;
    if (reach > -Infinity && left > reach) shift += left - reach;
    reach = Math.max(reach, thing.x + thing.half);
    thing.x -= shift;
  }
}

function xAt(points: { x: number; y: number }[], y: number): number {
  for (let i = 1; i < points.length; i++) {
    const a = points[i - 1];
    const b = points[i];
    if (y <= b.y || i === points.length - 1) {
      if (b.y === a.y) return b.x;
      const t = Math.min(1, Math.max(0, (y - a.y) / (b.y - a.y)));
      return a.x + (b.x - a.x) * t;
    }
  }
  return points[0]?.x ?? 0;
}

/** The same with x counted from the leftmost thing. */
function shifted(ranked: Ranked, spec: Spec): Ranked {
  const { x, ins, outs, bends } = ranked;
  const rims = [...x.map((at, i) => at - spec.boxes[i].w / 2), ...[...ins, ...outs].map((at) => at - 3)];
  const left = [...rims, ...bends.flat().map((at) => at - 2)].reduce((a, b) => Math.min(a, b), Infinity);
  if (left === Infinity) return ranked;
  const move = (at: number): number => at - left;
  return { ...ranked, x: x.map(move), ins: ins.map(move), outs: outs.map(move), bends: bends.map((b) => b.map(move)) };
}

// Long edges that begin at one place, or end at one, run as one line for as long as they can: the longest is the trunk,
// and the others leave it at their rows, or join it there. So a result that a hundred layers read is one line and not a
// hundred, and so are the hundred results of a cache.

/** More bends than this cost the search for an order more time than a person waits. */
const BENDS = 400;

const begins = (e: Edge): string => `${e.from}.${e.fromPort}`;
const ends = (e: Edge): string => `${e.to}.${e.toPort}`;

/** By edge, the one whose bends it shares: the longest from the same place, else the longest to it, or itself. */
export function trunks(spec: Spec, length: number[], without: Set<number>): number[] {
  const { edges } = spec;
  const share = (place: (e: Edge) => string, own: (i: number) => boolean): number[] => {
    const longest = new Map<string, number>();
    edges.forEach((e, i) => {
      const known = longest.get(place(e));
      if (!without.has(i) && own(i) && (known === undefined || length[i] > length[known])) longest.set(place(e), i);
    });
    return edges.map((e, i) => {
      const trunk = longest.get(place(e));
      return trunk !== undefined && own(i) && length[i] > 1 && length[trunk] >= length[i] ? trunk : i;
    });
  };
  const from = share(begins, () => true);
  const to = share(ends, (i) => from[i] === i && !from.some((t, k) => t === i && k !== i));
  return from.map((trunk, i) => (trunk === i ? to[i] : trunk));
}

/** What an edge has of its trunk's bends: the first where both begin at one place, else the last. */
export function shared<T>(spec: Spec, trunk: number, edge: number, bends: T[], count: number): T[] {
  if (begins(spec.edges[trunk]) === begins(spec.edges[edge])) return bends.slice(0, count);
  return bends.slice(Math.max(0, bends.length - count));
}

/** How many rows each edge spans, if every child stands right below the last of what it reads. */
export function spans(spec: Spec): number[] {
  const depth = new Array<number>(spec.boxes.length).fill(0);
  const inner = spec.edges.filter((e) => e.from >= 0 && e.to >= 0).sort((a, b) => a.to - b.to);
  for (const e of inner) depth[e.to] = Math.max(depth[e.to], depth[e.from] + 1);
  const deepest = Math.max(0, ...depth);
  return spec.edges.map((e) => (e.to < 0 ? deepest + 1 : depth[e.to]) - (e.from < 0 ? -1 : depth[e.from]));
}

/** Edges to leave out of the search, where there are too many bends: branches first, then the longest. */
export function leftOut(spec: Spec): Set<number> {
  const length = spans(spec);
  const trunk = trunks(spec, length, new Set());
  let bends = length.reduce((sum, l) => sum + Math.max(0, l - 1), 0);
  const out = new Set<number>();
  const order = length.map((_, i) => i)
    .sort((a, b) => Number(trunk[a] === a) - Number(trunk[b] === b) || length[b] - length[a]);
  for (const i of order) {
    if (bends <= BENDS || length[i] < 2) continue;
    // Trunks are what is seen of the branches; only a great many of them are too much.
    if (trunk[i] === i && bends <= BENDS * 4) break;
    bends -= length[i] - 1;
    out.add(i);
  }
  return out;
}
