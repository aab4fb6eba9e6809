// A profile as it was read: its graph, and what is known of how it was made.

import { type AgainstJson, clean, type ProfileJson } from "./document";
import { Formulas } from "./formulas";
import { Graph, list, number } from "./graph";

export type Model = ReturnType<typeof readModel>;

export function readModel(json: ProfileJson, against?: AgainstJson) {
  const pairs = (record: Record<string, string> = {}): [string, string][] =>
    Object.entries(record).map(([key, value]) => [clean(key), clean(value)]);
  return {
    name: clean(json.model?.name ?? "model"),
    cls: clean(json.model?.cls),
    notes: list(json.model?.notes).map((n) => clean(n, 1000)),
    mode: clean(json.mode ?? "infer"),
    target: clean(json.target?.name ?? "cpu"),
    attempts: list(json.tracing).map((a) => ({
      tracer: clean(a.tracer),
      tensors: clean(a.tensors),
      error: clean(a.error, 2000),
      seconds: number(a.seconds),
    })),
    versions: pairs(json.versions),
    convention: pairs(json.convention),
    graph: new Graph(json.graph ?? {}, against),
    formulas: json.formulas ? new Formulas(json.formulas) : null,
  };
}
