// The ways of colouring, and the categories of those that have some: each with a colour for light and for dark, and a
// mark that tells it without colour, as Python has them for all views.

import type { Bound } from "../data/costs";
import type { Change } from "../data/difference";
import type { MarkJson, MarksJson } from "../data/document";

export type ColourMode = "bottleneck" | "operator" | "flops" | "bytes" | "memory" | "time" | "dtype" | "fusion" | "difference";

export const COLOUR_MODES: [ColourMode, string][] = [
  ["bottleneck", "Bottleneck"],
  ["operator", "Operator"],
  ["time", "Predicted time"],
  ["flops", "FLOPs"],
  ["bytes", "Bytes moved"],
  ["memory", "Memory made"],
  ["dtype", "dtype"],
  ["fusion", "Fusion"],
  ["difference", "Difference"],
];

export interface Category {
  name: string;
  /** A mark that tells it without colour. */
  mark: string;
  light: string;
  dark: string;
}

export interface Marks {
  bounds: Record<Bound, Category>;
  changes: Record<Change, Category>;
  /** By category of kernels. */
  work: Record<string, Category>;
  /** By rule of fusion. */
  rules: Record<string, Category>;
  none: Category;
  unknown: Category;
  /** For what has no colour of its own: dtypes, subgraphs. */
  spare: Category[];
}

export function readMarks(json: MarksJson): Marks {
  const read = ([name, mark, light, dark]: MarkJson): Category => ({ name, mark, light, dark });
  const all = <Key extends string>(marks: Record<Key, MarkJson>): Record<Key, Category> =>
    Object.fromEntries(Object.entries<MarkJson>(marks).map(([key, mark]) => [key, read(mark)])) as Record<Key, Category>;
  return {
    bounds: all(json.bounds as Record<Bound, MarkJson>), changes: all(json.changes as Record<Change, MarkJson>),
    work: all(json.work), rules: all(json.rules), none: read(json.none), unknown: read(json.unknown),
    spare: json.spare.map(read),
  };
}
