// Which part of the world the canvas shows: a world point (x, y) at its upper left corner, and a scale; and what stands out
// in it: chosen, found, lit, or pointed at.

import type { Box, Scene } from "../layout/scene";
import type { Rect } from "../layout/spec";

export interface Camera {
  x: number;
  y: number;
  zoom: number;
}

export const MIN_ZOOM = 0.004;
export const MAX_ZOOM = 4;

/** Pixels at the edges of the canvas over which something else lies. */
export interface Inset {
  left: number;
  top: number;
}

/** The camera that shows a rectangle whole, in what `inset` leaves free. */
export function fitted(
  rect: Rect, width: number, height: number, margin = 24, most = 1.15, { left, top }: Inset = { left: 0, top: 0 },
): Camera {
  const zoom = Math.min(
    (width - left - 2 * margin) / Math.max(rect.w, 1), (height - top - 2 * margin) / Math.max(rect.h, 1), most,
  );
  const safe = Math.max(MIN_ZOOM, zoom);
  return {
    zoom: safe,
    x: rect.x + rect.w / 2 - (width + left) / 2 / safe,
    y: rect.y + rect.h / 2 - (height + top) / 2 / safe,
  };
}

/** The camera that shows a box in the middle, or null where it is readable and well inside already. */
export function bringing(camera: Camera, box: Rect, width: number, height: number, always: boolean): Camera | null {
  const { zoom } = camera;
  const left = (box.x - camera.x) * zoom;
  const top = (box.y - camera.y) * zoom;
  const inside = left > 20 && top > 20 && left + Math.min(box.w * zoom, width * 0.7) < width - 20 &&
    top + Math.min(box.h * zoom, height * 0.7) < height - 20;
  if (inside && zoom > 0.45 && !always) return null;
  const near: Rect = { x: box.x - 260, y: box.y - 180, w: box.w + 520, h: box.h + 360 };
  const target = fitted(near, width, height, 10, Math.max(zoom, 0.9));
  return target.zoom < zoom && zoom < 1.2 && box.h * zoom < height ? centred(box, zoom, width, height) : target;
}

/** The camera after a box was opened: moved as little as shows all of it, but not in miniature. */
export function showing(camera: Camera, box: Rect, width: number, height: number, { left, top }: Inset): Camera {
  const margin = 16;
  const whole = Math.min(
    (width - left - 2 * margin) / Math.max(box.w, 1), (height - top - 2 * margin) / Math.max(box.h, 1),
  );
  const zoom = Math.min(camera.zoom, Math.max(whole, 0.2));
  const along = (at: number, from: number, size: number, start: number, room: number): number => {
    // Where on the screen it begins; what is larger than its room begins at the room's beginning.
    const begins = Math.max(start, Math.min((from - at) * camera.zoom, start + room - size * zoom));
    return from - begins / zoom;
  };
  return {
    zoom,
    x: along(camera.x, box.x, box.w, left + margin, width - left - 2 * margin),
    y: along(camera.y, box.y, box.h, top + margin, height - top - 2 * margin),
  };
}

function centred(box: Rect, zoom: number, width: number, height: number): Camera {
  return { zoom, x: box.x + box.w / 2 - width / 2 / zoom, y: box.y + box.h / 2 - height / 2 / zoom };
}

/** Zoom by a factor about a point of the screen. */
export function zoomed(camera: Camera, factor: number, sx: number, sy: number): Camera {
  const zoom = Math.min(MAX_ZOOM, Math.max(MIN_ZOOM, camera.zoom * factor));
  return {
    zoom,
    x: camera.x + sx / camera.zoom - sx / zoom,
    y: camera.y + sy / camera.zoom - sy / zoom,
  };
}

export function visible(camera: Camera, width: number, height: number): Rect {
  return { x: camera.x, y: camera.y, w: width / camera.zoom, h: height / camera.zoom };
}

export function overlaps(a: Rect, b: Rect): boolean {
  return a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
}

export function mixed(a: Camera, b: Camera, t: number): Camera {
  const zoom = a.zoom * (b.zoom / a.zoom) ** t;
  // The point between the two that stays in place while the scale changes.
  if (Math.abs(a.zoom - b.zoom) < 1e-9) return { zoom, x: a.x + (b.x - a.x) * t, y: a.y + (b.y - a.y) * t };
  const s = (1 / zoom - 1 / a.zoom) / (1 / b.zoom - 1 / a.zoom);
  return { zoom, x: a.x + (b.x - a.x) * s, y: a.y + (b.y - a.y) * s };
}

export interface Marks {
  selected: Box | null;
  hovered: Box | null;
  /** Nodes to be lit; all others fade. Null where nothing is lit. */
  lit: Uint8Array | null;
  /** Of `lit`, running sums by node, so that a container knows at once. */
  litBefore: Float64Array | null;
  current: Box | null;
  into: Ends[];
  out: Ends[];
}

/** An edge among the children of a box. */
export interface Ends {
  box: Box;
  points: Float32Array;
}

/** The edges that end in a box, and those that begin there. */
export function edgesAt(box: Box | null): Pick<Marks, "into" | "out"> {
  const found: Pick<Marks, "into" | "out"> = { into: [], out: [] };
  const parent = box?.parent;
  if (!box || !parent?.layout) return found;
  const at = parent.children.indexOf(box);
  const { edges } = parent.layout;
  parent.edges.forEach((edge, i) => {
    if (edge.to === at) found.into.push({ box: parent, points: edges[i] });
    else if (edge.from === at) found.out.push({ box: parent, points: edges[i] });
  });
  return found;
}

/** Whether most of what is in an open box can be told apart at this scale; else it is drawn as one block. */
export function opened(box: Box, zoom: number): boolean {
  const seen = (b: Box): boolean => b.h * zoom >= 13 && b.w * zoom >= 24;
  const area = (all: Box[]): number => all.reduce((sum, { w, h }) => sum + w * h, 0);
  return !box.parent || (box.w * zoom >= 60 && seen(box) && 2 * area(box.children.filter(seen)) >= area(box.children));
}

/** The innermost box under a point of the screen; what is drawn as one block is one thing to the pointer, too. */
export function innermost(scene: Scene, camera: Camera, sx: number, sy: number): Box | null {
  const x = camera.x + sx / camera.zoom;
  const y = camera.y + sy / camera.zoom;
  let at: Box | undefined = scene.root;
  let found: Box | null = null;
  while (at && opened(at, camera.zoom)) {
    at = at.children.find((c) => x >= c.x && x <= c.x + c.w && y >= c.y && y <= c.y + c.h);
    found = at ?? found;
  }
  return found;
}
