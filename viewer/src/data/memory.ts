// Live memory over the run, kernel by kernel: a storage is live from the kernel that makes it up to, and
// not including, the one before which it died.

import { running } from "./costs";
import { numbers, type PageJson } from "./document";
import type { Graph } from "./graph";

export class Memory {
  /** Bytes live while each kernel runs. */
  readonly live: Float64Array;
  readonly peakAt: number;
  readonly kernels: number;

  constructor(private graph: Graph, { live: [changes, kinds] = [[], []], peak }: PageJson) {
    const by = numbers(kinds);
    this.kernels = by.length;
    this.live = running(by.length, (k) => changes[by[k]]).slice(1);
    this.peakAt = peak ?? 0;
  }

  get peak(): number {
    return this.live[this.peakAt] ?? 0;
  }

  /** The node that runs kernel `k`. */
  node(k: number): number {
    const starts = this.graph.kernelStart;
    let low = 0;
    let high = this.graph.nodes.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (starts[middle] <= k) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** What is live while kernel `k` runs, largest first: the bytes and the node that made them (or -1). */
  at(k: number): { bytes: number; node: number }[] {
    return this.graph.storages
      .filter((s) => s.born <= k && s.died > k && s.bytes > 0)
      .map(({ bytes, node }) => ({ bytes, node }))
      .sort((a, b) => b.bytes - a.bytes);
  }
}
