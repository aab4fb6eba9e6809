// The ways of colouring, and the categories of those that have some: each with a colour for light and for dark, and a
// mark that tells it without colour, as Python has them for all views.

import type { Bound } from "../data/costs";
import type { Change } from "../data/difference";
import type { MarkJson, MarksJson } from "../data/document";

export type ColourMode =
  "bottleneck" | "operator" | "flops" | "bytes" | "memory" | "time" | "dtype" | "fusion" | "difference";

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

export type Marks = ReturnType<typeof readMarks>;

export function readMarks(json: MarksJson) {
  const read = ([name, mark, light, dark]: MarkJson): Category => ({ name, mark, light, dark });
  const all = (marks: Record<string, MarkJson>): Record<string, Category> =>
    Object.fromEntries(Object.entries(marks).map(([key, mark]) => [key, read(mark)]));
  return {
    bounds: all(json.bounds) as Record<Bound, Category>,
    changes: all(json.changes) as Record<Change, Category>,
    /** By category of kernels, and by rule of fusion. */
    work: all(json.work),
    rules: all(json.rules),
    none: read(json.none),
    unknown: read(json.unknown),
    /** For what has no colour of its own: dtypes, subgraphs. */
    spare: json.spare.map(read),
  };
}
