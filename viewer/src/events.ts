// Who listens to what: the parts of the page know the app and its events, and not one another.

export class Events<Name extends string> {
  private listeners = new Map<Name, Set<() => void>>();

  on(event: Name, run: () => void): void {
    const known = this.listeners.get(event) ?? new Set();
    known.add(run);
    this.listeners.set(event, known);
  }

  emit(...events: Name[]): void {
    for (const event of events) this.listeners.get(event)?.forEach((run) => run());
  }

  /** Nobody listens any more. */
  silence(): void {
    this.listeners.clear();
  }
}
