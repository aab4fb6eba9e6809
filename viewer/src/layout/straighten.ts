// Where in its row each thing stands, after the order in the rows is known: chains of children are drawn
// straight, and what passes by keeps to the side (after the priority method of Sugiyama, Tagawa and Toda,
// 1981). A long edge has one bend in each row that it passes; when the children stand, its bends are
// brought into one line.

export interface Thing {
  x: number;
  /** Half of its width, with the room it wants. */
  half: number;
  row: number;
  /** What it is joined to in the row above and below, and how strongly. */
  above: Link[];
  below: Link[];
  bend: boolean;
}

export interface Link {
  to: Thing;
  weight: number;
}

const PASSES = 4;

/** Move the things of each row, which stand in order, without changing the order. */
export function straighten(rows: Thing[][], chains: Thing[][]): void {
  rows.forEach(spread);
  const down = (links: (t: Thing) => Link[]): void => {
    for (let r = 1; r < rows.length; r++) settle(rows[r], links);
  };
  const up = (links: (t: Thing) => Link[]): void => {
    for (let r = rows.length - 2; r >= 0; r--) settle(rows[r], links);
  };
  for (let pass = 0; pass < PASSES; pass++) {
    down((t) => t.above);
    up((t) => t.below);
  }
  down((t) => t.above);
  // What has nothing above it goes to what it feeds.
  up((t) => (t.above.length ? [] : t.below));
  line(rows, chains);
}

/** Make room where things would overlap. */
function spread(row: Thing[]): void {
  for (let i = 1; i < row.length; i++) {
    row[i].x = Math.max(row[i].x, row[i - 1].x + row[i - 1].half + row[i].half);
  }
}

/** Bring each thing of a row to where its links want it; the strongest first, the others give way. */
function settle(row: Thing[], links: (thing: Thing) => Link[]): void {
  const order = row
    .map((thing, i) => ({ thing, i, strength: strength(links(thing)) - (thing.bend ? 100 : 0) }))
    .filter(({ thing }) => links(thing).length)
    .sort((a, b) => b.strength - a.strength || a.i - b.i);
  const fixed = new Uint8Array(row.length);
  for (const { thing, i } of order) {
    move(row, i, wanted(links(thing)), fixed);
    fixed[i] = 1;
  }
}

function strength(links: Link[]): number {
  return Math.max(0, ...links.map((l) => l.weight));
}

/** The middle of what it is joined to most strongly. */
function wanted(links: Link[]): number {
  const most = strength(links);
  const strong = links.filter((l) => l.weight === most).map((l) => l.to.x);
  strong.sort((a, b) => a - b);
  const middle = strong.length >> 1;
  return strong.length % 2 ? strong[middle] : (strong[middle - 1] + strong[middle]) / 2;
}

/** Move one thing as near to `x` as those that are fixed allow, pushing the others. */
function move(row: Thing[], at: number, x: number, fixed: Uint8Array): void {
  const [low, high] = limits(row, at, fixed);
  const to = low > high ? row[at].x : Math.min(high, Math.max(low, x));
  const by = Math.sign(to - row[at].x);
  row[at].x = to;
  if (by) push(row, at, by);
}

/** Between which x a thing can be without moving a fixed one. */
function limits(row: Thing[], at: number, fixed: Uint8Array): [number, number] {
  const found: [number, number] = [-Infinity, Infinity];
  for (const by of [-1, 1]) {
    let room = row[at].half;
    let end = at + by;
    for (; row[end] && !fixed[end]; end += by) room += 2 * row[end].half;
    if (row[end]) found[by < 0 ? 0 : 1] = row[end].x - by * (row[end].half + room);
  }
  return found;
}

function push(row: Thing[], at: number, by: number): void {
  for (let i = at + by; row[i]; i += by) {
    const least = row[i - by].x + by * (row[i - by].half + row[i].half);
    if ((row[i].x - least) * by >= 0) break;
    row[i].x = least;
  }
}

/** Bring the bends of each long edge into one line, those beside the children first. */
function line(rows: Thing[][], chains: Thing[][]): void {
  const place = new Map<Thing, number>();
  const fixed = rows.map((row) => {
    row.forEach((thing, i) => place.set(thing, i));
    return Uint8Array.from(row, (thing) => (thing.bend ? 0 : 1));
  });
  const where = (t: Thing): number => place.get(t) as number;
  const layer = (t: Thing): number => {
    const row = rows[t.row];
    let out = 1;
    while ((row[where(t) - out]?.bend ?? false) && (row[where(t) + out]?.bend ?? false)) out++;
    return out;
  };
  const order = chains.filter((c) => c.length).map((chain) => ({ chain, layer: Math.max(...chain.map(layer)) }));
  order.sort((a, b) => a.layer - b.layer || b.chain.length - a.chain.length);
  for (const { chain } of order) {
    for (let from = 0; from < chain.length; ) {
      // As long a piece as one line can serve.
      let [low, high] = [-Infinity, Infinity];
      let to = from;
      for (; to < chain.length; to++) {
        const [l, h] = limits(rows[chain[to].row], where(chain[to]), fixed[chain[to].row]);
        if (to > from && Math.max(low, l) > Math.min(high, h)) break;
        [low, high] = [Math.max(low, l), Math.min(high, h)];
      }
      const piece = chain.slice(from, to);
      const mean = piece.reduce((sum, t) => sum + t.x, 0) / piece.length;
      const x = low > high ? mean : Math.min(high, Math.max(low, mean));
      for (const t of piece) {
        move(rows[t.row], where(t), x, fixed[t.row]);
        fixed[t.row][where(t)] = 1;
      }
      from = to;
    }
  }
}
