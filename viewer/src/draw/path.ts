// The curve of an edge from its points: straight where two points share an x or y, round at corners, and
// otherwise an S that leaves and arrives upright.

export interface PathSink {
  moveTo(x: number, y: number): void;
  lineTo(x: number, y: number): void;
  quadraticCurveTo(cx: number, cy: number, x: number, y: number): void;
  bezierCurveTo(ax: number, ay: number, bx: number, by: number, x: number, y: number): void;
}

const ROUND = 8;

const NOWHERE: PathSink = { moveTo: () => {}, lineTo: () => {}, quadraticCurveTo: () => {}, bezierCurveTo: () => {} };

/** Draw an edge; of what was `seen` (edges share long ways) each piece is drawn once. */
export function trace(points: Float32Array, to: PathSink, seen = new Set<string>()): void {
  const n = points.length / 2;
  let at = [points[0], points[1]] as const;
  let lifted = true;
  for (let i = 1; i < n; i++) {
    const x0 = points[2 * i - 2];
    const y0 = points[2 * i - 1];
    const x = points[2 * i];
    const y = points[2 * i + 1];
    const level = Math.abs(y - y0) < 0.5;
    // A piece is what it is by the points before and after it, at which it may be round.
    const piece = points.subarray(Math.max(0, 2 * i - 4), 2 * i + 4).join();
    const known = seen.has(piece);
    if (lifted && !known) to.moveTo(...at);
    lifted = known;
    seen.add(piece);
    const sink = known ? NOWHERE : to;
    at = [x, y];
    if (Math.abs(x - x0) >= 0.5 && !level) {
      const middle = (y0 + y) / 2;
      sink.bezierCurveTo(x0, middle, x, middle, x, y);
      continue;
    }
    const nextLevel = i + 1 < n && Math.abs(points[2 * i + 3] - y) < 0.5;
    const nextUpright = i + 1 < n && Math.abs(points[2 * i + 2] - x) < 0.5;
    if (i + 1 < n && ((level && nextUpright) || (!level && nextLevel))) {
      const nx = points[2 * i + 2];
      const ny = points[2 * i + 3];
      const before = Math.min(ROUND, (Math.abs(x - x0) + Math.abs(y - y0)) / 2);
      const after = Math.min(ROUND, (Math.abs(nx - x) + Math.abs(ny - y)) / 2);
      at = [x + Math.sign(nx - x) * after, y + Math.sign(ny - y) * after];
      sink.lineTo(x - Math.sign(x - x0) * before, y - Math.sign(y - y0) * before);
      sink.quadraticCurveTo(x, y, ...at);
      continue;
    }
    sink.lineTo(x, y);
  }
}

/** A small arrow at the end of an edge. */
export function arrow(points: Float32Array, sink: PathSink, size = 4.5): void {
  const x = points[points.length - 2];
  const y = points[points.length - 1];
  sink.moveTo(x, y);
  sink.lineTo(x - size * 0.7, y - size * 1.35);
  sink.lineTo(x + size * 0.7, y - size * 1.35);
  sink.lineTo(x, y);
}

/** Writes the path as the `d` of an SVG path. */
export class SvgPath implements PathSink {
  d = "";
  constructor(private x = 0, private y = 0) {}
  moveTo(x: number, y: number): void {
    this.d += `M${this.at(x, y)}`;
  }
  lineTo(x: number, y: number): void {
    this.d += `L${this.at(x, y)}`;
  }
  quadraticCurveTo(cx: number, cy: number, x: number, y: number): void {
    this.d += `Q${this.at(cx, cy)} ${this.at(x, y)}`;
  }
  bezierCurveTo(ax: number, ay: number, bx: number, by: number, x: number, y: number): void {
    this.d += `C${this.at(ax, ay)} ${this.at(bx, by)} ${this.at(x, y)}`;
  }
  private at(x: number, y: number): string {
    return `${round(x + this.x)},${round(y + this.y)}`;
  }
}

export function round(value: number): number {
  return Math.round(value * 100) / 100;
}
