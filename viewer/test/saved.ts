// The profiles that are saved for tests of both languages, and what Python puts into a page beside them.

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { PageJson, ProfileJson } from "../src/data/document";
import { type Model, readModel } from "../src/data/graph";
import { readTree, type Tree } from "../src/data/tree";

export const NAMES = ["resnet18", "bert-base-uncased", "gpt2", "yolov8n"];

function json(path: string): unknown {
  return JSON.parse(readFileSync(fileURLToPath(new URL(`../../tests/${path}.json`, import.meta.url)), "utf8"));
}

export function saved(name: string): ProfileJson {
  return json(`data/${name}`) as ProfileJson;
}

export function model(name: string): Model {
  return readModel(saved(name));
}

/** The page of a saved profile, with the H100 alone; tests/views/page/test_data.py keeps it as Python makes it. */
export function page(name: string): PageJson {
  return { ...(json(`views/page/goldens/${name}`) as PageJson), profile: saved(name) };
}

export function tree(name: string): Tree {
  return readTree(page(name).tree, model(name).graph);
}
