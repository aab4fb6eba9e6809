// The small parts that boxes are drawn of.

import type { Item } from "../data/tree";
import type { Box } from "../layout/scene";
import { HEADER, type Layout } from "../layout/spec";
import type { PathSink } from "./path";
import { type Edges, measure, type Pen } from "./pen";
import { mix, type Theme } from "./theme";

/** What stands behind the first of several. */
export function stack(box: Box, pen: Pen, stroke: string, fill: string, alpha: number): void {
  for (const step of [8, 4]) {
    pen.rect(box.x + step, box.y + step, box.w, box.h, 10, { fill, stroke, width: 1, alpha: alpha * 0.85 });
  }
}

/** A rounded label; returns its width. */
export function pill(
  pen: Pen, theme: Theme, x: number, middle: number, text: string, size: number, alpha: number,
): number {
  const width = measure(text, size, 650) + 12;
  pen.rect(x, middle - size * 0.78, width, size * 1.56, size, { fill: mix(theme.card, theme.accent, 0.16), alpha });
  pen.text(text, x + 6, middle + size * 0.36, { size, weight: 650, fill: mix(theme.text, theme.accent, 0.8), alpha });
  return width;
}

/** The upper part of a container, round at its corners. */
export function headerPath(p: PathSink, w: number): void {
  const r = 9.5;
  p.moveTo(0.5, HEADER);
  p.lineTo(0.5, r);
  p.quadraticCurveTo(0.5, 0.5, r, 0.5);
  p.lineTo(w - r, 0.5);
  p.quadraticCurveTo(w - 0.5, 0.5, w - 0.5, r);
  p.lineTo(w - 0.5, HEADER);
  p.lineTo(0.5, HEADER);
}

/** Pointing down where a module is open, and to the right where it is closed. */
export function chevron(pen: Pen, x: number, y: number, open: boolean, stroke: string, alpha: number): void {
  const s = 3.4;
  pen.path(
    (p) => {
      if (open) {
        p.moveTo(-s, -s / 2);
        p.lineTo(0, s / 2);
        p.lineTo(s, -s / 2);
      } else {
        p.moveTo(-s / 2, -s);
        p.lineTo(s / 2, 0);
        p.lineTo(-s / 2, s);
      }
    },
    x, y, { stroke, width: 1.5, alpha },
  );
}

interface Divided {
  lasting: Edges;
  former: Edges;
}

const known = new WeakMap<Box, Divided>();

/** The edges of a container in two: those that last, and those that end or begin at what is removed. */
export function divided(box: Box, layout: Layout, isGone: (item: Item) => boolean): Divided {
  let found = known.get(box);
  if (!found) {
    const gone = box.children.map((child) => isGone(child.item));
    const only = (former: boolean): Edges => {
      const kept = box.edges.flatMap((e, i) => (Boolean(gone[e.from] || gone[e.to]) === former ? i : []));
      return { edges: kept.map((i) => layout.edges[i]), heads: Uint8Array.from(kept, (i) => layout.heads[i]) };
    };
    found = { lasting: only(false), former: only(true) };
    known.set(box, found);
  }
  return found;
}
