import { expect, test } from "vitest";
import * as format from "../src/format";

// As `opgraph.units` writes them; what lies between two decimals goes to the even one.
test.each([
  [format.flops(3_628_146_688), "3.63 GFLOPs"],
  [format.count(109_482_240), "109.48M"],
  [format.count(405_853_388_800), "405.85G"],
  [format.size(437_935_104), "417.65 MiB"],
  [format.size(3.125 * 2 ** 20), "3.12 MiB"],
  [format.size(3.375 * 2 ** 20), "3.38 MiB"],
  [format.size(0), "0 B"],
  [format.percent(0.1234), "12.3 %"],
  [format.percent(1), "100 %"],
  [format.seconds(1.3), "1.30 s"],
  [format.seconds(0.0124), "12.4 ms"],
  [format.seconds(85e-6), "85 µs"],
  [format.intensity(null), "—"],
  [format.intensity(1234), "1,234"],
  [format.shape([1, 3, 224, "n"]), "1×3×224×n"],
  [format.plural(1, "node"), "1 node"],
  [format.plural(15_909, "kernel"), "15,909 kernels"],
])("%s", (shown, expected) => {
  expect(shown).toBe(expected);
});
