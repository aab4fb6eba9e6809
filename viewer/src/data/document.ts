// What Python puts into the page: the profile as `Profile.to_json` writes it, and what the page needs
// beside it. Records leave out the fields that hold their defaults.

export type Dim = number | string;

// Records as they are where all that they leave out is filled in (see `filled`).

export const KERNEL = {
  op: "", category: "other", dtype: "", flops: 0, other_flops: 0, read: 0, written: 0, cost: "formula",
  /** 0 of a part of a kernel that is divided over modules, all but the first. */
  launches: 1,
};
export const VALUE = { id: 0, shape: [] as Dim[], dtype: "", bytes: 0, kind: "activation", name: "" };
export const NODE = {
  id: 0, kind: "call", op: "", name: "", scope: "", target: "", arguments: "", inputs: [] as number[],
  outputs: [] as number[], parameters: [] as string[], kernels: [] as number[], file: "", line: 0, fragment: 0,
  phase: "forward", error: "",
};
export const PARAMETER = {
  name: "", shape: [] as Dim[], dtype: "", numel: 0, bytes: 0, scope: "", kind: "parameter", tied: [] as string[],
};

/** A record in JSON: some fields are left out, and some may be null. */
type Json<T> = { [K in keyof T]?: T[K] | null };

/** bytes, first kernel, the kernel before which it died (null: it outlived the run), node id. */
export type StorageJson = [number, number, number | null, number | null];

export interface GraphJson {
  breaks?: { fragment?: number; reason?: string; file?: string | null; line?: number | null }[];
  scopes?: { path: string; cls: string }[];
  parameters?: Json<typeof PARAMETER>[];
  kernels?: Json<typeof KERNEL>[];
  nodes?: Json<typeof NODE>[];
  values?: Json<typeof VALUE>[];
  storages?: StorageJson[];
}

/**
 * What the model costs at other sizes of its inputs. Of each size its name, what it is, as it was profiled, and those
 * offered; by point (the last size changes first) the totals FLOPs, other FLOPs, bytes and the peak of activations, or
 * null where no formula holds, and by distinct cost of a node the first three of them; by node its distinct cost.
 */
export interface SizesJson {
  variables: { name: string; meaning: string; value: number; offered: number[] }[];
  totals: (number[] | null)[];
  costs: ([number, number, number][] | null)[];
  nodes: number[] | string;
  notes: string[];
}

export interface ProfileJson {
  model?: { name?: string; cls?: string; notes?: string[] };
  mode?: string;
  target?: { name?: string };
  convention?: Record<string, string>;
  versions?: Record<string, string>;
  tracing?: { tracer?: string; tensors?: string; error?: string | null; seconds?: number }[];
  totals?: Record<string, unknown>;
  graph?: GraphJson;
}

/**
 * The items of the tree in preorder, by column. `kinds` has a letter each (r, p, m, f, g, n: the kinds of items);
 * `counts` how many children each branch has, in the order of the branches. Labels point into `texts`; a path is so
 * many characters of the module path of the item's first node. `classes` are pairs of an item and a text, where its
 * class is not its module's, `calls` of an item and which call of its module it is.
 */
export interface TreeJson {
  kinds: string;
  counts: number[];
  labels: number[] | string;
  classes: [number, number][];
  paths: number[] | string;
  calls: [number, number][];
  /** A text, and the modules of which it is the shape of the first result. */
  outputs?: number[][];
  texts: string[];
}

/**
 * A device, and what `opgraph` predicts for it. The ridge point is at `dtype`, the model's main one, as are the roof's
 * peak (FLOP/s) and bandwidth (bytes/s). The seconds of a run, and where the host is the `limit`, that it is. By distinct work,
 * microseconds in both queues, and what it waits for (c, m, l: compute, memory, launches); by distinct part, a
 * subgraph run as one kernel, microseconds, and as `fused` what that waits for.
 */
export interface DeviceJson {
  id: string;
  name: string;
  vendor: string;
  dtype: string;
  ridge: number;
  peak: number;
  bandwidth: number;
  /** The place of its costliest path. */
  path: number;
  /** Bytes that a run needs, and those there are. */
  memory: [number, number];
  queues: Record<"device" | "host", number[]>;
  bounds: string;
  fused: string;
  parts: number[];
  /** The time with its interval. */
  said: string;
  seconds: number;
  limit: string;
  /** What the distinct work of another profile took. */
  before?: number[];
}

/** By queue what runs in it: begin and length in microseconds, the id of a node, and whether kernels wait there for a
 * collective (1) or for another stage (2). */
export type QueuesJson = Record<string, [number, number, number, 0 | 1 | 2][]>;

/** A run that was measured: on what, how long a step took, the microseconds of nodes by id, the names of what ran, and
 * by stream or thread one step of it: begin and length in microseconds, the id of a node or 0, the place of a name; and
 * by node the most bytes that were allocated in it. */
export interface MeasuredJson {
  on: string;
  seconds: number;
  nodes: [number, number][];
  names: string[];
  lanes: Record<string, [number, number, number, number][]>;
  memory: [number, number][];
}

/** Another profile that this one is laid over; its graph is the union of both. */
export interface AgainstJson {
  name: string;
  totals: { parameters: number; flops: number; bytes: number; nodes: number };
  /** By node, its number in its own graph, and what became of it (a letter: see `CHANGES`). */
  ids: number[];
  changes: string;
  /** Which distinct work of the other profile each node was, -1 for none. */
  work?: string | number[];
  /** Nodes that read something only before: position, and how many of their last inputs that are. */
  former: [number, number][];
  /** Where it differs, what a node cost before: position, FLOPs, bytes. */
  before: [number, number, number][];
}

/** Rules with their reasons; distinct parts by rule, bytes read and written as one; subgraphs by part, the id of the
 * first node, and the steps to the others. */
export interface PartitionJson {
  rules: [string, string][];
  parts: [number, number, number][];
  subgraphs: number[][];
}

/** What a thing is called, a sign that tells it without colour, and its colours in a light and in a dark theme. */
export interface Mark {
  label: string;
  sign: string;
  light: string;
  dark: string;
}

/** The marks of `opgraph.views.marks`: by bound, by change, by category of kernels, by rule of fusion; of what does no
 * work and what is not known; and for what has no mark of its own (dtypes, subgraphs). */
export interface MarksJson {
  bounds: Record<string, Mark>;
  changes: Record<string, Mark>;
  work: Record<string, Mark>;
  rules: Record<string, Mark>;
  none: Mark;
  unknown: Mark;
  spare: Mark[];
}

/** The words of the sentence over the graph: of what does no work, with a device and without, and by bound what most of the time goes to,
 * where most of the bytes are moved, and what that means; `meaning` where there is no device. */
export interface HeadlineJson {
  idle: string;
  timed: string;
  hosted: string;
  plain: string;
  inputs: string;
  of: Record<string, string>;
  calls: string;
  words: Record<string, [string, string, string]>;
  meaning: string;
}

export interface PageJson {
  profile: ProfileJson;
  tree: TreeJson;
  sizes?: SizesJson;
  marks: MarksJson;
  against?: AgainstJson;
  measured?: MeasuredJson;
  /** When what runs on the device that the model is costed on, where ranks exchange something. */
  queues?: QueuesJson;
  partition?: PartitionJson;
  /** FLOPs per byte, where no device is chosen, and the parts of a ridge point between which work is balanced. */
  ridge: number;
  balanced: [number, number];
  /** How many more bytes are live after a kernel: the distinct changes, and by kernel which; and where most are. */
  live?: [number[], number[] | string];
  /** By node how many kernels that are, where other kernels run. */
  ran?: number[] | string;
  peak?: number | null;
  /** The costliest ways through the graph in steps (see `stepped`), and by measure which of them. */
  paths?: (number[] | string)[];
  path?: Record<string, number>;
  headline: HeadlineJson;
  /** What is said of operators in few characters ("7×7 /2"), with the ids of their nodes. */
  details?: Record<string, number[]>;
  /** By node "1" where it only looks at data differently: it is drawn only if that is asked for. */
  plumbing: string;
  /** By node its distinct work, or -1 (see `numbers`). */
  work: number[] | string;
  /** Modules that compute something themselves: the path with the ranges of folds, the item, and what is its own. */
  spots: [string, number, ...number[]][];
  /** The id of the device that is chosen at first. */
  device?: string;
  devices: DeviceJson[];
  /** What one would ask next, and the command that answers it. */
  next?: [string, string][];
}

/** Numbers that are written as characters: "0" is -1. */
export function numbers(text: number[] | string): number[] {
  return typeof text === "string" ? Array.from(text, (c) => c.charCodeAt(0) - 49) : text;
}

/** Numbers that are written as the first of them, and by how much each further one is more. */
export function stepped(steps: number[]): number[] {
  let at = 0;
  return steps.map((step) => (at += step));
}

const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Text of a model made fit for a line: characters that cannot be seen become a mark, and it has an end. */
export function clean(text: unknown, limit = 300): string {
  const line = String(text ?? "");
  const cut = line.length > limit ? line.slice(0, limit - 1) + "…" : line;
  return cut.replace(UNSEEN, "\ufffd");
}

/** A record of which what is left out, or is of another type, is as usual. Its texts are made fit to be shown. */
export function filled<T extends object>(usual: T, json: Json<T> = {}): T {
  const fit = (value: unknown): unknown =>
    typeof value === "string" ? clean(value, 2000) : Array.isArray(value) ? value.map(fit) : value;
  const made = { ...usual };
  for (const key in usual) {
    const value = json[key];
    if (value !== null && typeof value === typeof usual[key]) made[key] = fit(value) as T[typeof key];
  }
  return made;
}
