// Devices: what a machine can do at most, and from that what a piece of work takes on it. The rules for
// dtypes are those of `opgraph.hardware`; the efficiencies come with the data.

import { clean, type DeviceJson } from "./document";
import type { Graph, Kernel } from "./graph";

/** The shares of its peaks that a machine reaches. */
export interface Efficiency {
  compute: number;
  memory: number;
}

export interface Work {
  flops: number;
  otherFlops: number;
  bytes: number;
  dtype: string;
}

export class Device {
  readonly id: string;
  readonly name: string;
  readonly vendor: string;
  private figures: Record<string, number>;

  constructor(json: DeviceJson, private efficiency: Efficiency) {
    this.id = clean(json.id);
    this.name = clean(json.name);
    this.vendor = clean(json.vendor);
    this.figures = json.figures;
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

  /** Seconds: as long as the arithmetic or the memory takes, whichever is longer. */
  seconds({ flops, otherFlops, bytes, dtype }: Work): number {
    const arithmetic = flops / this.matrixPeak(dtype) + otherFlops / this.vectorPeak(dtype);
    return Math.max(arithmetic / this.efficiency.compute, bytes / (this.bandwidth * this.efficiency.memory));
  }

  kernel(kernel: Kernel): number {
    return this.seconds({ flops: kernel.flops, otherFlops: kernel.otherFlops, bytes: kernel.read + kernel.written, dtype: kernel.dtype });
  }
}

export function readDevices(json: DeviceJson[] | undefined, efficiency: Efficiency | undefined): Device[] {
  return efficiency ? (json ?? []).map((d) => new Device(d, efficiency)) : [];
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
