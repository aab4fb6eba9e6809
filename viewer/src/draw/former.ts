// The edges of a container in two: those that last, and those that end or begin at what is removed.

import type { Item } from "../data/tree";
import type { Box } from "../layout/scene";
import type { Layout } from "../layout/spec";
import type { Edges } from "./pen";

interface Divided {
  lasting: Edges;
  former: Edges;
}

const known = new WeakMap<Box, Divided>();

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
