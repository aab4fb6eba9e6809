// What costs most: the dearest nodes, and the dearest way through the graph.

import type { Costs } from "./costs";
import type { Graph } from "./graph";

/**
 * Seconds by node, or where no time is predicted the share of all FLOPs and bytes. As they are differences of
 * sums, only their leading digits are told apart: layers that are alike weigh the same.
 */
export function weights(graph: Graph, costs: Costs): Float32Array {
  const timed = costs.total("time") > 0;
  const [flops, bytes] = [costs.total("flops") || 1, costs.total("bytes") || 1];
  return Float32Array.from(graph.nodes, (_, n) =>
    timed ? costs.node("time", n) : costs.node("flops", n) / flops + costs.node("bytes", n) / bytes,
  );
}

/** The nodes that weigh most, heaviest first. */
export function heaviest(weight: Float32Array, count: number): number[] {
  return [...weight.keys()]
    .filter((n) => weight[n] > 0)
    .sort((a, b) => weight[b] - weight[a])
    .slice(0, count);
}

/** The chain of nodes, each reading what the one before made, that weighs most in all. */
export function heaviestPath(graph: Graph, weight: Float32Array): number[] {
  const best = new Float64Array(weight.length);
  const from = new Int32Array(weight.length).fill(-1);
  let end = -1;
  for (let n = 0; n < weight.length; n++) {
    for (const s of graph.sources[n]) {
      if (from[n] < 0 || best[s] > best[from[n]]) from[n] = s;
    }
    best[n] = weight[n] + (from[n] >= 0 ? best[from[n]] : 0);
    if (end < 0 || best[n] > best[end]) end = n;
  }
  const path: number[] = [];
  for (let n = end; n >= 0; n = from[n]) path.unshift(n);
  return path;
}
