// A profile as it was read: its graph, and what is known of how it was made.

import { clean, type AgainstJson, type ProfileJson } from "./document";
import { Formulas } from "./formulas";
import { Graph, list, number } from "./graph";

export interface Model {
  name: string;
  cls: string;
  notes: string[];
  mode: string;
  attempts: { tracer: string; tensors: string; error: string; seconds: number }[];
  versions: [string, string][];
  convention: [string, string][];
  graph: Graph;
  formulas: Formulas | null;
}

export function readModel(json: ProfileJson, against?: AgainstJson): Model {
  return {
    name: clean(json.model?.name ?? "model"),
    cls: clean(json.model?.cls),
    notes: list(json.model?.notes).map((n) => clean(n, 1000)),
    mode: clean(json.mode ?? "infer"),
    attempts: list(json.tracing).map((a) => ({
      tracer: clean(a.tracer),
      tensors: clean(a.tensors),
      error: clean(a.error, 2000),
      seconds: number(a.seconds),
    })),
    versions: Object.entries(json.versions ?? {}).map(([k, v]) => [clean(k), clean(v)]),
    convention: Object.entries(json.convention ?? {}).map(([k, v]) => [clean(k), clean(v)]),
    graph: new Graph(json.graph ?? {}, against),
    formulas: json.formulas ? new Formulas(json.formulas) : null,
  };
}
