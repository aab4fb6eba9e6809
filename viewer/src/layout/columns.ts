// Where to break a tall stack of rows into columns, so that a deep model fills the screen instead of being
// a strip. Breaks are made where few edges cross, and so that the columns are about equally high.

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
