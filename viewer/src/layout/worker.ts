// The layout off the main thread: remembers what it laid out, and answers with what is new.

import { layoutContainer } from "./container";
import type { Layout, Reply, Request, Spec } from "./spec";

/** Lays out specs, inner ones first, each once. */
export class Engine {
  constructor(private known = new Map<number, Layout>()) {}

  run(specs: Spec[]): [number, Layout][] {
    const made: [number, Layout][] = [];
    for (const spec of specs) {
      if (this.known.has(spec.id)) continue;
      const layout = layoutContainer(spec, (id) => this.known.get(id) as Layout);
      this.known.set(spec.id, layout);
      made.push([spec.id, layout]);
    }
    return made;
  }
}

/** Answer requests that arrive at a worker's global scope. */
export function serve(
  scope: { onmessage: ((event: MessageEvent<Request>) => void) | null; postMessage: (reply: Reply) => void }
): void {
  const engine = new Engine();
  scope.onmessage = (event) => {
    const { id, specs } = event.data;
    try {
      scope.postMessage({ id, layouts: engine.run(specs) });
    } catch (error) {
      scope.postMessage({ id, layouts: [], error: String(error) });
    }
  };
}
