// Run the jobs of a queue: node work.mjs redis://127.0.0.1:6379 letters
import { setTimeout } from "node:timers/promises";
import { Worker } from "./client.mjs";

const [url, queue] = process.argv.slice(2);
const runs = {};

const worker = new Worker(url, queue, {
  shout: ({ text }) => text.toUpperCase(),

  flaky(_, { failures }) {
    if (failures === 0) throw new RangeError("the first attempt fails");
    return `attempt ${failures + 1}`;
  },

  async slow({ seconds }, { id, signal }) {
    runs[id] = (runs[id] ?? 0) + 1;
    await setTimeout(seconds * 1_000, null, { signal });
    return `run ${runs[id]}`;
  },
});

process.on("SIGTERM", () => worker.stop());
process.on("SIGINT", () => worker.stop());
await worker.run();
