// Devices: what a machine can do at most, and from that what a piece of work takes on it. The rules for
// dtypes are those of `opgraph.hardware`, and the formula is that of `opgraph.analysis.prediction`.

import { clean, type DeviceJson, type KindJson, type WorkJson } from "./document";
import type { Graph } from "./graph";

export class Device {
  readonly id: string;
  readonly name: string;
  readonly vendor: string;
  private kind: string;
  private figures: Record<string, number>;

  constructor(json: DeviceJson) {
    this.id = clean(json.id);
    this.name = clean(json.name);
    this.vendor = clean(json.vendor);
    this.kind = json.kind;
    this.figures = json.figures ?? {};
  }

  /** Bytes/s. */
  get bandwidth(): number {
    return this.figures["memory.bandwidth"] || 1;
  }

  /** FLOP/s of contractions: of the matrix units if they take the dtype, else of the others. */
  matrixPeak(dtype: string): number {
    return this.figures[`matrix.${family(dtype)}`] || this.vectorPeak(dtype);
  }

  /** FLOP/s of element-wise work; float32's where the file has no other. */
  vectorPeak(dtype: string): number {
    return this.figures[`vector.${family(dtype)}`] || this.figures["vector.float32"] || 1;
  }

  ridgePoint(dtype: string): number {
    return this.matrixPeak(dtype) / this.bandwidth;
  }

  /** Seconds of one kernel: the longer of its arithmetic and its traffic, and what a launch takes. */
  seconds([flops, kind, unit, dtype, bytes, traffic, serial, reads]: KindJson, work: WorkJson): number {
    const peak = unit === "matrix" ? this.matrixPeak(dtype) : this.vectorPeak(dtype);
    const compute = flops / peak / (work.compute[kind] ?? 1);
    const reach = (this.figures["memory.cache"] || 0) * work.cache;
    const near = reads.reduce((sum, [size, distance]) => sum + (distance <= reach ? size : 0), 0);
    const paid = (bytes - near * (1 - work.cached)) / this.bandwidth / (work.traffic[traffic] ?? 1);
    const least = this.kind === "gpu" ? serial : 0;
    return Math.max(compute, paid, least) + (this.figures["execution.launch_overhead"] || 0);
  }

  /** Seconds of every node. */
  predict(work: WorkJson, nodes: number): Float64Array {
    const kinds = work.kinds.map((kind) => this.seconds(kind, work));
    return Float64Array.from({ length: nodes }, (_, n) => (work.nodes[n] ?? []).reduce((sum, k) => sum + (kinds[k] ?? 0), 0));
  }
}

/** The devices; none where the page cannot predict for them. */
export function readDevices(json: DeviceJson[] | undefined, work: WorkJson | undefined): Device[] {
  return work ? (json ?? []).map((d) => new Device(d)) : [];
}

/** The name under which device files list a dtype: float8_e4m3fn is float8, uint8 is int8. */
export function family(dtype: string): string {
  if (dtype.startsWith("float8")) return "float8";
  if (dtype.startsWith("float4")) return "float4";
  if (dtype === "complex128") return "float64";
  if (["complex64", "complex32", "qint32"].includes(dtype)) return "float32";
  if (dtype.startsWith("uint")) return dtype.slice(1);
  return dtype.startsWith("q") ? dtype.slice(1) : dtype;
}

/** The dtype in which most of the model's contractions run. */
export function mainDtype(graph: Graph): string {
  const work = new Map<string, number>();
  for (const node of graph.nodes) {
    for (const k of node.kernels) {
      const { dtype, flops } = graph.kernels[k];
      work.set(dtype, (work.get(dtype) ?? 0) + flops);
    }
  }
  const [first] = [...work].sort((a, b) => b[1] - a[1]);
  return first?.[0] ?? "float32";
}
