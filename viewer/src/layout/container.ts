// The layout of one container: rows and bends from `ranks`, columns, and from both the places of the children and the
// points of the edges. Between two rows an edge bends; within a row it goes straight down, so that it does not cut
// through tall neighbours. A tall stack of rows is broken into columns, so that a deep model fills the screen instead of
// being a strip; breaks are made where few edges cross, and so that the columns are about equally high.

import { rank, type Ranked, RESIDUAL } from "./ranks";
import { HEADER, type Layout, PAD, type Spec } from "./spec";

const ROW_GAP = 26;
const COLUMN_GAP = 44;
const LANE = 9;
/** How far the ways in and out are from the children. */
const RIM = 14;

interface Column {
  start: number;
  end: number;
  x: number;
  left: number;
  width: number;
  top: number;
  bottom: number;
}

export function layoutContainer(spec: Spec, inner: (id: number) => Layout): Layout {
  const boxes = spec.boxes.map((b) => (b.spec < 0 ? b : { ...b, w: inner(b.spec).w, h: inner(b.spec).h }));
  const sized = { ...spec, boxes };
  const ranked = rank(sized);
  const heights = new Array<number>(Math.max(ranked.rows, 1)).fill(0);
  boxes.forEach((b, i) => (heights[ranked.row[i]] = Math.max(heights[ranked.row[i]], b.h)));
  const starts = breaks(
    heights, ROW_GAP, crossings(sized, ranked), widths(sized, ranked), COLUMN_GAP, spec.aspect, spec.crossing,
  );
  const columns = place(sized, ranked, heights, starts);

  const rowTop = new Array<number>(heights.length);
  for (const column of columns) {
    let y = column.top;
    for (let r = column.start; r < column.end; r++) {
      rowTop[r] = y;
      y += heights[r] + ROW_GAP;
    }
  }
  const columnOf = (row: number): Column => columns.find((c) => row < c.end) ?? columns[columns.length - 1];
  const placed = new Float64Array(boxes.length * 4);
  boxes.forEach((b, i) => {
    const row = ranked.row[i];
    const column = columnOf(row);
    placed.set(
      [column.x + ranked.x[i] - column.left - b.w / 2, rowTop[row] + (heights[row] - b.h) / 2, b.w, b.h], i * 4,
    );
  });
  const last = columns[columns.length - 1];
  const w = Math.max(last.x + last.width + PAD, 120);
  const h = Math.max(...columns.map((c) => c.bottom)) + PAD + (spec.outs ? RIM : 0);
  const ins = Float32Array.from(ranked.ins, (x) => columns[0].x + x - columns[0].left);
  const outs = Float32Array.from(ranked.outs, (x) => last.x + x - last.left);
  const router = new Router(sized, ranked, columnOf, rowTop, heights, placed, { w, h, ins, outs }, inner);
  const heads = Uint8Array.from(spec.edges, (e) => (e.to >= 0 && boxes[e.to].spec < 0 ? 1 : 0));
  return { w, h, boxes: placed, edges: spec.edges.map((_, i) => router.points(i)), heads, ins, outs };
}

/**
 * How many edges go from above each row to that row or below. All that come in from outside count as one,
 * and so do all that go out, and all that end at one child: they run side by side.
 */
function crossings(spec: Spec, ranked: Ranked): number[] {
  const crossing = Array.from({ length: ranked.rows + 1 }, () => new Set<number>());
  for (const e of spec.edges) {
    const from = e.from < 0 ? 0 : ranked.row[e.from];
    const to = e.to < 0 ? ranked.rows - 1 : ranked.row[e.to];
    for (let r = from + 1; r <= to; r++) crossing[r].add(e.from < 0 ? -1 : e.to < 0 ? -2 : e.to);
  }
  return crossing.map((ends) => ends.size);
}

/** How far left and right the rows reach, boxes and bends. */
function reaches(spec: Spec, ranked: Ranked): [number, number][] {
  const reach = Array.from({ length: Math.max(ranked.rows, 1) }, (): [number, number] => [Infinity, -Infinity]);
  const see = (row: number, x: number, half: number): void => {
    reach[row][0] = Math.min(reach[row][0], x - half);
    reach[row][1] = Math.max(reach[row][1], x + half);
  };
  spec.boxes.forEach((b, i) => see(ranked.row[i], ranked.x[i], b.w / 2));
  ranked.bends.forEach((bends, i) => {
    const { from } = spec.edges[i];
    const half = spec.edges[i].residual ? RESIDUAL : 4;
    bends.forEach((x, k) => see((from < 0 ? 0 : ranked.row[from] + 1) + k, x, half));
  });
  for (const x of ranked.ins) see(0, x, 4);
  for (const x of ranked.outs) see(reach.length - 1, x, 4);
  return reach;
}

function widths(spec: Spec, ranked: Ranked): (from: number, to: number) => number {
  const reach = reaches(spec, ranked);
  return (from, to) => {
    const part = reach.slice(from, to);
    return Math.max(1, Math.max(...part.map((r) => r[1])) - Math.min(...part.map((r) => r[0])));
  };
}

function place(spec: Spec, ranked: Ranked, heights: number[], starts: number[]): Column[] {
  const top = HEADER + PAD + (spec.ins ? RIM : 0);
  const reach = reaches(spec, ranked);
  let x = PAD;
  return starts.map((start, c) => {
    const end = starts[c + 1] ?? heights.length;
    const part = reach.slice(start, end).filter(([l, r]) => l <= r);
    const left = part.length ? Math.min(...part.map((r) => r[0])) : 0;
    const width = part.length ? Math.max(...part.map((r) => r[1])) - left : 0;
    const height = heights.slice(start, end).reduce((sum, h) => sum + h + ROW_GAP, -ROW_GAP);
    const column = { start, end, x, left, width, top, bottom: top + height };
    x += width + COLUMN_GAP;
    return column;
  });
}

/** Draws each edge as points; consecutive points on one x or y are joined straight, others by a bend. */
class Router {
  /** By column, the trunks that turned into the gutter after it. */
  private lanes = new Map<number, number[]>();

  constructor(
    private spec: Spec, private ranked: Ranked, private columnOf: (row: number) => Column, private rowTop: number[],
    private heights: number[], private placed: Float64Array,
    private rim: { w: number; h: number; ins: Float32Array; outs: Float32Array },
    private inner: (id: number) => Layout,
  ) {}

  points(index: number): Float32Array {
    const edge = this.spec.edges[index];
    const [x0, y0, row0] = this.start(edge.from, edge.fromPort, index);
    const [x1, y1, row1] = this.end(edge.to, edge.toPort, index);
    const points = [x0, y0];
    // Beside a taller neighbour it goes straight, before and after it.
    const under = row0 < 0 ? y0 : this.rowTop[row0] + this.heights[row0];
    if (under > y0 + 1) points.push(x0, under);
    const bends = this.ranked.bends[index];
    const straight = bends.length !== Math.max(0, row1 - row0 - 1);
    let column = this.columnOf(Math.max(row0, 0));
    for (let r = row0 + 1; r <= row1; r++) {
      const next = this.columnOf(Math.min(r, this.heights.length - 1));
      const ends = r === row1;
      const local = ends ? x1 : next.x + bends[r - row0 - 1] - next.left;
      if (next !== column) {
        this.turn(points, column, next, ends || !straight ? local : x1, this.ranked.trunk[index]);
        column = next;
      }
      if (ends || straight) continue;
      points.push(local, this.rowTop[r], local, this.rowTop[r] + this.heights[r]);
    }
    const over = row1 >= this.heights.length ? y1 : this.rowTop[row1];
    if (over < y1 - 1) points.push(x1, over);
    points.push(x1, y1);
    return Float32Array.from(points);
  }

  /** Out of the bottom of one column, up the gutter, and in at the top of the next. */
  private turn(points: number[], from: Column, to: Column, x: number, trunk: number): void {
    const turned = this.lanes.get(from.start) ?? [];
    this.lanes.set(from.start, turned);
    if (!turned.includes(trunk)) turned.push(trunk);
    const lane = turned.indexOf(trunk);
    const gutter = to.x - COLUMN_GAP / 2 + ((lane % 4) - 1) * LANE;
    const low = from.bottom + 10 + (lane % 4) * 5;
    const high = to.top - 10 - (lane % 4) * 4;
    const at = points[points.length - 2];
    points.push(at, low, gutter, low, gutter, high, x, high);
  }

  private start(from: number, port: number, index: number): [number, number, number] {
    if (from < 0) return [this.rim.ins[-1 - from], HEADER, -1];
    return [
      this.x(from, port, index, "from"), this.placed[from * 4 + 1] + this.placed[from * 4 + 3], this.ranked.row[from],
    ];
  }

  private end(to: number, port: number, index: number): [number, number, number] {
    if (to < 0) return [this.rim.outs[-1 - to], this.rim.h, this.heights.length];
    return [this.x(to, port, index, "to"), this.placed[to * 4 + 1], this.ranked.row[to]];
  }

  /** Where on the rim of a child an edge ends: at its way in or out if it is open, else spread by where edges begin. */
  private x(child: number, port: number, index: number, side: "from" | "to"): number {
    const [left, , width] = this.placed.subarray(child * 4, child * 4 + 3);
    const box = this.spec.boxes[child];
    if (box.spec >= 0) {
      const layout = this.inner(box.spec);
      const at = (side === "to" ? layout.ins : layout.outs)[port];
      if (at !== undefined) return left + at;
    }
    if (side === "from") return left + width / 2;
    const order = this.arrivals(child);
    const spread = Math.min(18, (width - 24) / Math.max(order.length, 1));
    return left + width / 2 + (order.indexOf(index) - (order.length - 1) / 2) * spread;
  }

  private arrivals(child: number): number[] {
    const arriving: number[] = [];
    this.spec.edges.forEach((e, i) => {
      if (e.to === child) arriving.push(i);
    });
    const origin = (i: number): number => {
      const bends = this.ranked.bends[i];
      if (bends.length) return bends[bends.length - 1];
      const from = this.spec.edges[i].from;
      return from < 0 ? this.ranked.ins[-1 - from] : this.ranked.x[from];
    };
    return arriving.sort((a, b) => origin(a) - origin(b));
  }
}

/** The height of a usual window: what fits into it at full size needs no columns. */
const WINDOW = 800;

/**
 * The rows that begin a column, the first (0) among them.
 *
 * `heights` are of the rows, `crossing[r]` is how many edges go from above row r to r or below, `width`
 * gives that of a column of the rows from one up to another, and `between` what lies between two columns.
 * `aspect` is the width over height of the window, `most` how many edges may cross a break.
 */
export function breaks(
  heights: number[], gap: number, crossing: number[], width: (from: number, to: number) => number, between: number,
  aspect: number, most: number,
): number[] {
  const rows = heights.length;
  const total = height(heights, gap, 0, rows);
  if (total < WINDOW) return [0];
  const columnsAtMost = Math.min(24, Math.ceil(Math.sqrt((aspect * total) / width(0, rows))) + 1);
  let best = [0];
  let least = cost(width(0, rows), total, aspect, 0);
  for (let columns = 2; columns <= columnsAtMost; columns++) {
    const starts = split(heights, gap, crossing, columns, most);
    if (starts.length !== columns) continue;
    const ends = starts.map((_, i) => starts[i + 1] ?? rows);
    const tallest = Math.max(...starts.map((s, i) => height(heights, gap, s, ends[i])));
    const wide = starts.reduce((sum, s, i) => sum + width(s, ends[i]) + between, -between);
    const crossed = starts.slice(1).reduce((sum, s) => sum + crossing[s], 0);
    const now = cost(wide, tallest, aspect, crossed / (columns - 1));
    if (now < least) [least, best] = [now, starts];
  }
  return best;
}

/** How small the whole would be drawn; edges that turn into the next column make it harder to read. */
function cost(wide: number, tall: number, aspect: number, crossed: number): number {
  const scale = Math.min(1, (WINDOW * aspect) / wide, WINDOW / tall);
  return -Math.log(scale) + 0.2 * crossed;
}

/** The lowest columns, at most so many, that breaks at allowed rows give. */
function split(heights: number[], gap: number, crossing: number[], columns: number, most: number): number[] {
  let low = Math.max(...heights);
  let high = height(heights, gap, 0, heights.length);
  let best: number[] = [0];
  for (let i = 0; i < 24 && high - low > 1; i++) {
    const limit = (low + high) / 2;
    const starts = greedy(heights, gap, crossing, limit, most);
    if (starts && starts.length <= columns) [high, best] = [limit, starts];
    else low = limit;
  }
  return best;
}

/** Fill columns up to a limit, one after the other; null where a piece without a break is higher. */
function greedy(heights: number[], gap: number, crossing: number[], limit: number, most: number): number[] | null {
  const starts = [0];
  let candidate = -1;
  let at = 0;
  for (let r = 0; r < heights.length; r++) {
    at += heights[r] + (r > starts[starts.length - 1] ? gap : 0);
    if (at > limit && r > starts[starts.length - 1]) {
      const end = crossing[r] <= most ? r : candidate;
      if (end < 0) return null;
      starts.push(end);
      candidate = -1;
      at = height(heights, gap, end, r + 1);
      if (at > limit && r > end) return null;
    } else if (r > starts[starts.length - 1] && crossing[r] <= most) candidate = r;
  }
  return starts;
}

function height(heights: number[], gap: number, from: number, to: number): number {
  let sum = -gap;
  for (let r = from; r < to; r++) sum += heights[r] + gap;
  return sum;
}
