// Asks the worker for layouts; where a page may not start one, the layout runs on the main thread.

import type { Layout, Reply, Request, Spec } from "./spec";
import { Engine } from "./worker";
import LayoutWorker from "./worker-entry?worker&inline";

export class LayoutClient {
  private worker: Worker | null = null;
  private engine: Engine | null = null;
  private known = new Map<number, Layout>();
  private waiting = new Map<number, { specs: Spec[]; done: () => void }>();
  private requests = 0;

  constructor() {
    try {
      this.worker = new LayoutWorker();
      this.worker.onmessage = (event: MessageEvent<Reply>) => this.receive(event.data);
      this.worker.onerror = (event) => {
        event.preventDefault();
        this.fallBack();
      };
    } catch {
      this.fallBack();
    }
  }

  get(spec: number): Layout | undefined {
    return this.known.get(spec);
  }

  /** Lay out what is not laid out yet; inner specs stand before those that hold them. */
  async ensure(specs: Spec[]): Promise<void> {
    const missing = specs.filter((s) => !this.known.has(s.id));
    if (!missing.length) return;
    if (this.engine) {
      this.engine.run(missing);
      return;
    }
    await new Promise<void>((done) => {
      const id = ++this.requests;
      this.waiting.set(id, { specs: missing, done });
      const request: Request = { id, specs: missing };
      this.worker?.postMessage(request);
    });
  }

  close(): void {
    this.worker?.terminate();
    this.worker = null;
  }

  private receive(reply: Reply): void {
    const entry = this.waiting.get(reply.id);
    this.waiting.delete(reply.id);
    for (const [id, layout] of reply.layouts) this.known.set(id, layout);
    if (reply.error) console.error(`layout: ${reply.error}`);
    entry?.done();
  }

  private fallBack(): void {
    this.close();
    this.engine ??= new Engine(this.known);
    const specs = new Map<number, Spec>();
    for (const entry of this.waiting.values()) for (const spec of entry.specs) specs.set(spec.id, spec);
    this.engine.run([...specs.values()]);
    for (const entry of this.waiting.values()) entry.done();
    this.waiting.clear();
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
