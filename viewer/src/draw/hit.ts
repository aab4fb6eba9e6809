// What is under a point of the screen.

import type { Box, Scene } from "../layout/scene";
import type { Camera } from "./camera";

/** The innermost box there; what is drawn as one block is one thing to the pointer, too. */
export function innermost(scene: Scene, camera: Camera, sx: number, sy: number): Box | null {
  const x = camera.x + sx / camera.zoom;
  const y = camera.y + sy / camera.zoom;
  let at: Box | undefined = scene.root;
  let found: Box | null = null;
  while (at && (at === scene.root || at.h * camera.zoom >= 36)) {
    at = at.children.find((c) => x >= c.x && x <= c.x + c.w && y >= c.y && y <= c.y + c.h);
    found = at ?? found;
  }
  return found;
}
