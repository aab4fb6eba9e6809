// Two profiles as one graph: what the other one had and this one has not is put among the nodes, marked as
// removed, so that it can be drawn, found and chosen like any other. It has no kernels, and costs nothing.

import type { AgainstJson, GraphJson, NodeJson, PageJson, ScopeJson, ValueJson } from "./document";

/** The same page with the removed nodes in its graph, and all that names nodes by their position moved on. */
export function united(page: PageJson): PageJson {
  const { profile, partition, work } = page;
  const against = page.against && sound(page.against);
  if (!against?.removed.length) return page;
  const order = seats(profile.graph.nodes?.length ?? 0, against.removed);
  const graph = new Merger(profile.graph, against).merge(order);
  const now = new Map(order.flatMap(({ own }, i) => (own ? [[own, i + 1]] : [])));
  const moved = (id: number): number => now.get(id) ?? 0;
  return {
    ...page,
    profile: { ...profile, graph: { ...graph, storages: graph.storages?.map(([bytes, born, died, node]) => [bytes, born, died, node && moved(node)]) } },
    against: { ...against, before: order.map(({ own, gone }) => gone?.[0] ?? against.before[own - 1] ?? 0) },
    partition: partition && { ...partition, subgraphs: partition.subgraphs.map(([rule, read, written, ids]) => [rule, read, written, ids.map(moved)]) },
    work: work && { ...work, nodes: order.map(({ own }) => work.nodes[own - 1] ?? []) },
  };
}

type Removed = AgainstJson["removed"][number];

/** A node of the union: the 1-based id of one of this graph, or 0 and one of the other's that is gone. */
interface Seat {
  own: number;
  gone?: Removed;
}

function sound(against: AgainstJson): AgainstJson {
  const count = against.profile.graph?.nodes?.length ?? 0;
  const removed = (against.removed ?? []).filter(([id]) => Number.isInteger(id) && id >= 1 && id <= count);
  return { ...against, before: against.before ?? [], removed };
}

function seats(count: number, removed: Removed[]): Seat[] {
  const before = new Map<number, Seat[]>();
  for (const gone of removed) {
    const at = Math.min(Math.max(gone[2], 1), count + 1) || count + 1;
    before.set(at, [...(before.get(at) ?? []), { own: 0, gone }]);
  }
  return Array.from({ length: count + 1 }, (_, i) => [...(before.get(i + 1) ?? []), ...(i < count ? [{ own: i + 1 }] : [])]).flat();
}

class Merger {
  private nodes: NodeJson[] = [];
  private values: ValueJson[];
  private scopes: Map<string, ScopeJson>;
  private theirs: GraphJson;
  private theirValues: Map<number, ValueJson>;
  private theirScopes: Map<string, ScopeJson>;
  /** By value of the other graph, the value that stands for it, once its maker has been passed. */
  private stand = new Map<number, number>();
  /** Values that only removed nodes make. */
  private former = new Set<number>();
  private next: number;

  constructor(
    private graph: GraphJson,
    private against: AgainstJson,
  ) {
    this.theirs = against.profile.graph;
    this.values = [...(graph.values ?? [])];
    this.next = this.values.reduce((most, v) => Math.max(most, v.id), 0) + 1;
    this.scopes = new Map((graph.scopes ?? []).map((s) => [s.path, s]));
    this.theirValues = new Map((this.theirs.values ?? []).map((v) => [v.id, v]));
    this.theirScopes = new Map((this.theirs.scopes ?? []).map((s) => [s.path, s]));
  }

  merge(order: Seat[]): GraphJson {
    for (const { own, gone } of order) {
      const other = this.theirs.nodes?.[(gone?.[0] ?? this.against.before[own - 1] ?? 0) - 1];
      const read = (other?.inputs ?? []).flatMap((id) => this.stand.get(id) ?? []);
      if (gone && other) this.remove(other, gone[1], read);
      else this.keep((this.graph.nodes ?? [])[own - 1], other, read);
    }
    return { ...this.graph, nodes: this.nodes, values: this.values, scopes: [...this.scopes.values()] };
  }

  private keep(node: NodeJson, other: NodeJson | undefined, read: number[]): void {
    const outputs = node.outputs ?? [];
    other?.outputs?.forEach((id, i) => outputs.length && this.stand.set(id, outputs[i] ?? outputs[0]));
    this.nodes.push({ ...node, formerly: read.filter((id) => this.former.has(id)) });
  }

  private remove(other: NodeJson, scope: string, inputs: number[]): void {
    const outputs = (other.outputs ?? []).map((id) => {
      const value = this.theirValues.get(id) ?? { shape: [], dtype: "", bytes: 0 };
      this.values.push({ ...value, id: this.next, kind: "activation", storage: null });
      this.former.add(this.next);
      this.stand.set(id, this.next);
      return this.next++;
    });
    const idle = !other.parameters?.length && (other.kernels ?? []).every((k) => this.theirs.kernels?.[k]?.cost === "zero");
    const { fragment, phase } = this.nodes[this.nodes.length - 1] ?? {};
    this.nodes.push({ ...other, scope, inputs, outputs, kernels: [], parameters: [], error: null, fragment, phase, removed: idle ? "idle" : "working" });
    this.know(scope, other.scope ?? "");
  }

  /** Take over the modules around a removed node that are gone, too. */
  private know(path: string, there: string): void {
    for (let [here, then] = [path, there]; here && !this.scopes.has(here); [here, then] = [above(here), above(then)]) {
      this.scopes.set(here, { ...(this.theirScopes.get(then) ?? { cls: "", calls: 1 }), path: here });
    }
  }
}

function above(path: string): string {
  return path.slice(0, Math.max(0, path.lastIndexOf(".")));
}
