// Costs as polynomials in the sizes of the inputs, where the profile carries them. They hold for modules; the
// nodes that stand directly in a module share its own part as they do at the sizes of the profile.

import { clean, type FormulasJson, type PieceJson } from "./document";
import type { Graph } from "./graph";

export type Quantity = "flops" | "otherFlops" | "bytes";

const NAMES: Record<Quantity, string> = { flops: "flops", otherFlops: "other_flops", bytes: "bytes" };

export interface Variable {
  name: string;
  meaning: string;
  value: number;
}

export class Formulas {
  readonly variables: Variable[];
  readonly notes: string[];

  constructor(private json: FormulasJson) {
    this.variables = (json.variables ?? [])
      .map((v) => ({ name: clean(v.name, 8), meaning: clean(v.meaning, 80), value: v.value }));
    this.notes = (json.notes ?? []).map((n) => clean(n, 500));
  }

  get base(): number[] {
    return this.variables.map((v) => v.value);
  }

  /** A total at some sizes; null where no formula holds. */
  total(quantity: string, point: number[]): number | null {
    return this.value(this.json.totals[quantity], point);
  }

  module(path: string, quantity: Quantity, point: number[]): number | null {
    const own = path === "" ? this.json.totals : this.json.modules[path];
    return own ? this.value(own[NAMES[quantity]], point) : null;
  }

  private value(index: number | undefined, point: number[]): number | null {
    const pieces = index === undefined ? undefined : this.json.formulas[index];
    const piece = pieces?.find(
      (p) => p.where.every(
        ([low, high, step], i) => point[i] >= low && (high === null || point[i] <= high) &&
          (point[i] - low) % step === 0
      )
    );
    return piece ? evaluate(piece, point) : null;
  }

  /** By node, what a quantity is at some sizes; null where some module has no formula there. */
  nodes(graph: Graph, quantity: Quantity, base: (node: number) => number, point: number[]): Float64Array | null {
    const inside = new Map<string, number[]>();
    graph.nodes.forEach((n, i) => {
      if (!n.removed) inside.set(n.scope, [...(inside.get(n.scope) ?? []), i]);
    });
    const children = new Map<string, string[]>();
    for (const path of Object.keys(this.json.modules)) {
      if (path !== "") children.set(this.above(path), [...(children.get(this.above(path)) ?? []), path]);
    }
    const found = new Float64Array(graph.nodes.length);
    for (const [path, nodes] of inside) {
      const whole = this.module(path, quantity, point);
      const parts = (children.get(path) ?? []).map((child) => this.module(child, quantity, point));
      if (whole === null || parts.includes(null)) return null;
      const own = whole - parts.reduce<number>((sum, p) => sum + (p ?? 0), 0);
      const before = nodes.reduce((sum, n) => sum + base(n), 0);
      for (const n of nodes) found[n] = before ? (base(n) / before) * own : own / nodes.length;
    }
    return found;
  }

  /** The nearest module around a path that has a formula. */
  private above(path: string): string {
    let at = path;
    do at = at.slice(0, Math.max(0, at.lastIndexOf(".")));
    while (at !== "" && !(at in this.json.modules));
    return at;
  }
}

function evaluate(piece: PieceJson, point: number[]): number {
  const term = ([numerator, denominator, ...powers]: number[]): number =>
    (numerator / denominator) * powers.reduce((product, power, i) => product * point[i] ** power, 1);
  return piece.terms.reduce((sum, each) => sum + term(each), 0);
}
