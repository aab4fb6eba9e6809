// What Python puts into the page: the profile as `Profile.to_json` writes it, and what the page needs
// beside it. Records leave out the fields that hold their defaults.

export type Dim = number | string;

export interface KernelJson {
  op: string;
  category?: string;
  dtype?: string;
  flops?: number;
  other_flops?: number;
  read?: number;
  written?: number;
  cost?: "formula" | "zero" | "unknown";
  shapes?: Dim[][];
  out_shapes?: Dim[][];
}

export interface ValueJson {
  id: number;
  shape: Dim[];
  dtype: string;
  bytes: number;
  kind?: string;
  name?: string | null;
  alias_of?: number | null;
  storage?: number | null;
}

export interface NodeJson {
  id: number;
  kind: string;
  op: string;
  name: string;
  scope?: string;
  target?: string;
  arguments?: string;
  inputs?: number[];
  outputs?: number[];
  parameters?: string[];
  kernels?: number[];
  file?: string | null;
  line?: number | null;
  fragment?: number;
  phase?: string;
  error?: string | null;
  /** Not in this graph but in the one that it is compared with; there it did some work, or none. */
  removed?: "working" | "idle";
  /** Values of removed nodes that its counterpart read. */
  formerly?: number[];
}

export interface ScopeJson {
  path: string;
  cls: string;
  calls?: number;
  doc?: string;
}

export interface ParameterJson {
  name: string;
  shape: Dim[];
  dtype: string;
  numel: number;
  bytes: number;
  scope: string;
  kind?: string;
  trainable?: boolean;
  tied?: string[];
}

export interface BreakJson {
  fragment: number;
  reason: string;
  file?: string | null;
  line?: number | null;
}

/** bytes, first kernel, the kernel before which it died (null: it outlived the run), node id. */
export type StorageJson = [number, number, number | null, number | null];

export interface GraphJson {
  inputs?: number[];
  outputs?: number[];
  breaks?: BreakJson[];
  scopes?: ScopeJson[];
  parameters?: ParameterJson[];
  kernels?: KernelJson[];
  nodes?: NodeJson[];
  values?: ValueJson[];
  storages?: StorageJson[];
}

export interface AttemptJson {
  tracer: string;
  tensors: string;
  error?: string | null;
  seconds?: number;
}

/** Where a polynomial holds (low, high or null, step, by variable), and its terms: numerator, denominator, powers. */
export interface PieceJson {
  where: [number, number | null, number][];
  terms: [number, number, ...number[]][];
}

export interface FormulasJson {
  variables: { name: string; option: string; meaning: string; value: number }[];
  totals: Record<string, number>;
  modules: Record<string, Record<string, number>>;
  formulas: PieceJson[][];
  checked?: number[][];
  notes?: string[];
}

export interface ProfileJson {
  formulas?: FormulasJson;
  model: { name: string; source: string; cls: string; notes?: string[] };
  mode?: string;
  convention?: Record<string, string>;
  versions?: Record<string, string>;
  tracing?: AttemptJson[];
  totals?: Record<string, unknown>;
  graph: GraphJson;
}

/** A device file: numbers by their dotted name. */
export interface DeviceJson {
  id: string;
  name: string;
  vendor: string;
  kind: string;
  figures: Record<string, number>;
}

/** FLOPs, their class, units and dtype; bytes, their class; least seconds on a GPU; reads that a cache may hold. */
export type KindJson = [number, string, "matrix" | "vector", string, number, string, number, [number, number][]];

/** How `opgraph.analysis.prediction` predicts: shares of peak and bandwidth by class, and the work of each node. */
export interface WorkJson {
  compute: Record<string, number>;
  traffic: Record<string, number>;
  cached: number;
  cache: number;
  kinds: KindJson[];
  nodes: number[][];
}

/** Another profile: by node the id of its counterpart there (0: none); and what is gone: its id, its module, and
 * the id of the node before which it stood. */
export interface AgainstJson {
  profile: ProfileJson;
  before: number[];
  removed: [number, string, number][];
}

/** Rules with their reasons; subgraphs by rule, bytes read and written as one kernel, and node ids. */
export interface PartitionJson {
  rules: [string, string][];
  subgraphs: [number, number, number, number[]][];
}

export interface PageJson {
  profile: ProfileJson;
  against?: AgainstJson;
  partition?: PartitionJson;
  /** The id of the device that is chosen at first. */
  device?: string;
  devices?: DeviceJson[];
  work?: WorkJson;
}

const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Text of a model made fit for a line: characters that cannot be seen become a mark, and it has an end. */
export function clean(text: unknown, limit = 300): string {
  const line = String(text ?? "");
  const cut = line.length > limit ? line.slice(0, limit - 1) + "…" : line;
  return cut.replace(UNSEEN, "\ufffd");
}
