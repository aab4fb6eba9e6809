// The layouts of containers, each made once, a few at a time so that the page stays alive meanwhile.

import { layoutContainer } from "./container";
import type { Layout, Spec } from "./spec";

/** Milliseconds after which others have their turn. */
const TURN = 40;

export class Layouts {
  private known = new Map<number, Layout>();

  get(spec: number): Layout | undefined {
    return this.known.get(spec);
  }

  /** Lay out what is not laid out yet; inner specs stand before those that hold them. */
  async ensure(specs: Spec[]): Promise<void> {
    let began = performance.now();
    for (const spec of specs) {
      if (this.known.has(spec.id)) continue;
      this.known.set(spec.id, layoutContainer(spec, (id) => this.known.get(id) as Layout));
      if (performance.now() - began < TURN) continue;
      await new Promise((done) => setTimeout(done));
      began = performance.now();
    }
  }
}

/** One thing at a time: what is asked for while something runs is done once, when that has ended. */
export class Queue {
  private running: Promise<void> | null = null;
  private next: (() => void) | null = null;

  /** Calls while one runs are made into one more. */
  run(job: () => Promise<void>): Promise<void> {
    if (this.running) {
      const before = this.next;
      return new Promise((done) => {
        this.next = () => {
          before?.();
          void this.run(job).then(done);
        };
      });
    }
    this.running = job().finally(() => {
      this.running = null;
      const { next } = this;
      this.next = null;
      next?.();
    });
    return this.running;
  }
}
