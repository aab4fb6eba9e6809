// What stands out in the picture: chosen, found, lit, or pointed at.

import type { Box, Scene } from "../layout/scene";
import type { Camera } from "./camera";

export interface Marks {
  selected: Box | null;
  hovered: Box | null;
  /** Nodes to be lit; all others fade. Null where nothing is lit. */
  lit: Uint8Array | null;
  /** Of `lit`, running sums by node, so that a container knows at once. */
  litBefore: Int32Array | null;
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
