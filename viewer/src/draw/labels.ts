// Where the shapes of results stand: beside the edge that carries them, and clear of all edges, boxes and one another.
// Several edges that come to one place are a cable, whose label says how many; a residual says so on its line. What finds no place is left out; the note under the pointer says it.

import type { Item } from "../data/tree";
import * as format from "../format";
import type { Box } from "../layout/scene";
import { TERMINAL } from "../layout/plan";
import { HEADER, type Rect } from "../layout/spec";
import { overlaps } from "./camera";
import { measure } from "./pen";

const RESIDUAL = "residual";
/** So many edges to one place are said to be that many. */
const CABLE = 5;
/** What lies within this of a label is too near. */
const CLEAR = 2;
/** In containers with more edges than this nobody looks for shapes. */
const MOST = 600;

/** A text, with the room that it takes, within its container. */
export interface Label extends Rect {
  text: string;
  pill: boolean;
}

const known = new WeakMap<Box, { size: number; labels: Label[] }>();

/** Labels of the children of an open box whose result goes on, each where it is free, in letters of this size. */
export function shapeLabels(box: Box, size: number, shapeOf: (item: Item) => string): Label[] {
  let found = known.get(box);
  if (found?.size !== size) {
    found = { size, labels: box.edges.length > MOST ? [] : place(box, size, shapeOf) };
    known.set(box, found);
  }
  return found.labels;
}

function place(box: Box, size: number, shapeOf: (item: Item) => string): Label[] {
  const lines = (box.layout?.edges ?? []).flatMap(pieces);
  const solid = box.children.map(({ x, y, w, h, item }): Rect => {
    const behind = item.kind === "fold" ? 8 : 0;
    return { x: x - box.x, y: y - box.y, w: w + behind, h: h + behind };
  });
  const made: Label[] = [];
  const free = (r: Label): boolean => {
    const wide = { x: r.x - CLEAR, y: r.y - CLEAR, w: r.w + 2 * CLEAR, h: r.h + 2 * CLEAR };
    return r.x > 4 && r.y > HEADER && r.x + r.w < box.w - 4 && r.y + r.h < box.h - 1 &&
      !solid.some((s) => overlaps(s, r)) && !made.some((s) => overlaps(s, wide)) &&
      (r.text === RESIDUAL || !lines.some((line) => crosses(line, wide)));
  };
  const put = (text: string, w: number, xs: number[], ys: number[], pill = false): boolean => {
    const all = ys.flatMap((y) => xs.map((x): Label => ({ text, x, y, w, h: pill ? 1.5 * size : size, pill })));
    const label = all.find(free);
    if (label) made.push(label);
    return label !== undefined;
  };
  const cables = new Map<string, Float32Array[]>();
  box.edges.forEach(({ to, toPort }, i) => {
    const place = `${to}.${toPort}`;
    cables.set(place, [...(cables.get(place) ?? []), box.layout?.edges[i] ?? new Float32Array(2)]);
  });
  for (const wires of cables.values()) {
    if (wires.length < CABLE) continue;
    const [x, y] = wires[0].slice(-2);
    const text = format.plural(wires.length, "wire");
    const w = measure(text, size, 650) + 12;
    put(text, w, [x + 8, x - 8 - w, x + 40, x - 40 - w], [y - 20, y - 24], true);
  }
  const named = measure(RESIDUAL, size, 650) + 12;
  box.edges.forEach(({ residual }, i) => {
    const points = box.layout?.edges[i] ?? [];
    // On the line itself, beside a child that it passes.
    for (let k = 3, done = !residual; !done && k < points.length; k += 2) {
      const [x, from, to] = [points[k - 1], points[k - 2], points[k]];
      if (points[k - 3] !== x || to - from <= TERMINAL.h) continue;
      done = put(RESIDUAL, named, [x - named / 2], [(from + to) / 2 - 0.75 * size], true);
    }
  });
  const ends = new Set(box.edges.filter((e) => e.to >= 0 || box.layout?.outs.length).map((e) => e.from));
  box.children.forEach((child, i) => {
    const text = ends.has(i) ? shapeOf(child.item) : "";
    if (!text) return;
    const w = measure(text, size);
    const { x, y, w: width, h: height } = solid[i];
    const middle = x + width / 2;
    const below = y + height;
    put(text, w, [middle + 7, middle - 7 - w, x + width - w, x, middle + 26, middle - 26 - w],
      [below + 5, below + 9, below + 13]);
  });
  return made;
}

/** Ends of straight pieces of an edge; curves are cut into ten. */
function pieces(points: Float32Array): number[][] {
  return Array.from({ length: points.length / 2 - 1 }, (_, i) => {
    const [x0, y0, x, y] = points.subarray(2 * i, 2 * i + 4);
    if (Math.abs(x - x0) < 0.5 || Math.abs(y - y0) < 0.5) return [[x0, y0, x, y]];
    const at = (t: number): number[] => [
      x0 + (x - x0) * t * t * (3 - 2 * t), y0 * (1 - t) ** 3 + 1.5 * (y0 + y) * t * (1 - t) + y * t ** 3,
    ];
    return Array.from({ length: 10 }, (_, k) => [...at(k / 10), ...at((k + 1) / 10)]);
  }).flat();
}

/** Whether a piece touches a rectangle. */
function crosses([x0, y0, x1, y1]: number[], { x, y, w, h }: Rect): boolean {
  if (Math.max(x0, x1) < x || Math.min(x0, x1) > x + w || Math.max(y0, y1) < y || Math.min(y0, y1) > y + h) return false;
  // It passes between two corners that lie on different sides of it, or ends inside.
  const side = (px: number, py: number): number => (x1 - x0) * (py - y0) - (y1 - y0) * (px - x0);
  const sides = [side(x, y), side(x + w, y), side(x, y + h), side(x + w, y + h)];
  return Math.min(...sides) <= 0 && Math.max(...sides) >= 0;
}
