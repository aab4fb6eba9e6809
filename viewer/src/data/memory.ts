// Live memory over the run, kernel by kernel: a storage is live from the kernel that makes it up to, and
// not including, the one before which it died.

import type { Graph } from "./graph";

export class Memory {
  /** Bytes live while each kernel runs. */
  readonly live: Float64Array;
  readonly peakAt: number;
  readonly kernels: number;

  constructor(private graph: Graph) {
    this.kernels = graph.kernelStart[graph.nodes.length];
    const change = new Float64Array(this.kernels + 2);
    for (const s of graph.storages) {
      const born = Math.min(Math.max(0, s.born), this.kernels);
      change[born] += s.bytes;
      if (s.died < this.kernels) change[Math.max(s.died, born)] -= s.bytes;
    }
    this.live = new Float64Array(Math.max(this.kernels, 1));
    let now = 0;
    let peak = 0;
    for (let k = 0; k < this.live.length; k++) {
      now += change[k];
      this.live[k] = now;
      if (now > this.live[peak]) peak = k;
    }
    this.peakAt = peak;
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
