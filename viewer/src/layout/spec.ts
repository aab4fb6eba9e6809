// What one open container asks of the layout, and what it gets back. A spec says nothing of names, so
// that containers of equal structure (the layers of a model) are laid out once.

export interface Rect {
  x: number;
  y: number;
  w: number;
  h: number;
}

export interface Box {
  w: number;
  h: number;
  /** The spec of what is open inside, or -1. Its size comes from there. */
  spec: number;
}

export interface Edge {
  /** A child's position, or `-1 - k` for the container's k-th way in. */
  from: number;
  /** A child's position, or `-1 - k` for the container's k-th way out. */
  to: number;
  /** Which of the ways out of `from` and of the ways into `to`, by position. */
  fromPort: number;
  toPort: number;
  /** What it carries is added to what the children that it passes make of it. */
  residual: boolean;
}

export interface Spec {
  id: number;
  boxes: Box[];
  edges: Edge[];
  ins: number;
  outs: number;
  /** Width over height to aim at when a tall stack is broken into columns, and how many edges may cross a break. */
  aspect: number;
  crossing: number;
}

export interface Layout {
  w: number;
  h: number;
  /** x, y, w, h of each child, within the container. */
  boxes: Float64Array;
  /** By edge, the points x, y, x, y … from its beginning to its end. */
  edges: Float32Array[];
  /** By edge, whether it ends at a closed child; others go on inside or outside. */
  heads: Uint8Array;
  /** The x of the ways in (on the upper rim) and out (on the lower one). */
  ins: Float32Array;
  outs: Float32Array;
}

/** Room around the children of a container; the header takes `HEADER` more above. */
export const PAD = 16;
export const HEADER = 46;
