// Long edges that begin at one place, or end at one, run as one line for as long as they can: the longest is the trunk,
// and the others leave it at their rows, or join it there. So a result that a hundred layers read is one line and not a
// hundred, and so are the hundred results of a cache.

import type { Edge, Spec } from "./spec";

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
