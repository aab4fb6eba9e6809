import { expect, test } from "vitest";
import { pack, unpack } from "../src/url";

test.each([[[]], [[0]], [[0, 1, 2, 3]], [[5, 900, 901, 902, 40_000]]])("ids %j survive the address", (ids) => {
  expect(unpack(pack(ids), 100_000)).toEqual(ids);
});

test("an address cannot ask for more than there is", () => {
  expect(unpack("1*zzzzzzzz", 10)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9]);
  expect(unpack("-5.x!.9999", 10)).toEqual([]);
});
