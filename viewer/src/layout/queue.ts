// One thing at a time: what is asked for while something runs is done once, when that has ended.

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
