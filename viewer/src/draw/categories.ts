// The ways of colouring, and the categories of those that have some: each with a colour for light and for
// dark, and a mark that tells it without colour.

import type { Bound } from "../data/costs";
import type { Change } from "../data/difference";

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
  light: string;
  dark: string;
  /** A mark that tells it without colour. */
  mark: string;
}

export const category = (name: string, light: string, dark: string, mark: string): Category => ({ name, light, dark, mark });

export const BOUND: Record<Bound, Category> = {
  compute: category("compute", "#d55e00", "#ff9d4d", "▲"),
  balanced: category("balanced", "#009e73", "#35c79a", "◆"),
  memory: category("memory", "#0072b2", "#5cb6f2", "●"),
  launch: category("launches", "#8e44ad", "#c792ea", "■"),
};
export const NOTHING = category("no work", "#b4b8c0", "#5a6270", "·");
export const UNKNOWN = category("unknown cost", "#cc79a7", "#e79fc6", "?");

export const CHANGES: Record<Change, Category> = {
  costlier: category("costlier", "#d55e00", "#ff9d4d", "▲"),
  cheaper: category("cheaper", "#0072b2", "#5cb6f2", "▼"),
  added: category("added", "#009e73", "#35c79a", "+"),
  removed: category("removed", "#a3315f", "#ff8fb5", "−"),
  changed: category("changed", "#8e44ad", "#c792ea", "≠"),
  same: category("same", "#b4b8c0", "#5a6270", "="),
};

/** Kinds of work, as kernels name them, in the order of the legend. */
export const WORK: Category[] = [
  category("matmul", "#0072b2", "#5cb6f2", "M"),
  category("convolution", "#d55e00", "#ff9d4d", "C"),
  category("attention", "#8e44ad", "#c792ea", "A"),
  category("normalization", "#009e73", "#35c79a", "N"),
  category("elementwise", "#e69f00", "#ffc44d", "+"),
  category("softmax", "#cc79a7", "#e79fc6", "S"),
  category("reduction", "#7a7a00", "#c9c94a", "Σ"),
  category("pooling", "#a0522d", "#d99a73", "P"),
  category("indexing", "#4b5fc4", "#98a7ff", "I"),
  category("recurrent", "#b03060", "#ff8fb5", "R"),
  category("interpolation", "#2f8f8f", "#7fd0d0", "↕"),
  category("copy", "#7f8793", "#9aa3b1", "="),
];
export const SPARE = ["#5f6b7a", "#3f7f7f", "#8a6d3b", "#6b4f8a", "#2f6f4f", "#7f3f3f"];
