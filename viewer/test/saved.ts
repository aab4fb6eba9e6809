// The profiles that are saved for tests of both languages.

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { ProfileJson } from "../src/data/document";
import { type Model, readModel } from "../src/data/model";

export const NAMES = ["resnet18", "bert-base-uncased", "gpt2", "yolov8n"];

export function saved(name: string): ProfileJson {
  const path = fileURLToPath(new URL(`../../tests/data/${name}.json`, import.meta.url));
  return JSON.parse(readFileSync(path, "utf8")) as ProfileJson;
}

export function model(name: string): Model {
  return readModel(saved(name));
}
