// A producer and a worker for queues of glidemq_async. The contract is docs/wire-protocol.md.
import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { setTimeout } from "node:timers/promises";
import { decode, encode } from "@msgpack/msgpack";
import Redis from "ioredis";

const PASSING = /^(READONLY|LOADING|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|BUSY|MISCONF|NOREPLICAS)\b/;
const POLL_MS = 5_000; // in case a wake-up is lost
const MOST_ENDED = 500;
const SHORTEST_LEASE_MS = 1_000;
const STARTED = Date.now();
const packed = (value) => Buffer.from(encode(value, { ignoreUndefined: true }));
const policy = (kept, ttl) => (kept ? kept.join(" ") : "") + (ttl ? ` t${ttl}` : "");
const isGiven = (value) => Object.values(value).some((each) => each !== undefined);
const SEP = 0x1f;

// Return the jobs of one element of a reply. Jobs with an order that start together for the first time are one element.
function claimedJobs(values) {
  const [token, head, , , ids, , , texts] = values;
  if (token.length) return [values];
  return String(ids).split(" ").map((id, nth) => compactJob(head + String(nth).padStart(3, "0"), id, texts[nth]));
}

// Return a compact job in the form of any other one. A number in its name is the size of the options before the data.
function compactJob(entry, id, text) {
  const first = text.indexOf(SEP);
  const second = text.indexOf(SEP, first + 1);
  const [name, size = 0] = String(text.subarray(first + 1, second)).split("\x1e");
  const data = second + 1 + Number(size);
  return [entry, name, text.subarray(data), 1, id, text.subarray(second + 1, data), 1, text.subarray(0, first)];
}

class Client {
  constructor(url, queue, prefix = "glide") {
    this.base = `${prefix}:{${queue}}`;
    // ioredis sends a call without a reply again. Each call has a number, so the server executes it once.
    this.redis = new Redis(url, { maxRetriesPerRequest: null }).on("error", () => {});
    this.channels = {};
  }

  // The same call is sent again while the server starts, fails over, or waits for a replica or its disk.
  async call(name, ...args) {
    for (;;) {
      try {
        return await this.redis.callBuffer("FCALL", `glidemq_async_v2_${name}`, 1, this.base, ...args);
      } catch (error) {
        if (!PASSING.test(error.message)) throw error;
        await setTimeout(100);
      }
    }
  }

  async open() {
    const mark = randomUUID().replaceAll("-", "").slice(0, 16);
    this.incarnation = (await this.call("openQueue", "", mark, ""))[4];
    return this;
  }

  // A channel has one call in flight. `args` is a function, because another incarnation may be open at the second try.
  once(name, args, channel = (this.channel ??= randomUUID())) {
    const state = (this.channels[channel] ??= { number: 0, last: Promise.resolve() });
    const send = async () => {
      const reply = await this.call(name, channel, state.number + 1, ...args()).catch(async (error) => {
        if (!error.message.startsWith("GLIDEMQ UNDECLARED")) throw error;
        await this.open();
        return this.call(name, channel, state.number + 1, ...args());
      });
      state.number += 1; // a refused call has stored no number
      return reply;
    };
    return (state.last = state.last.then(send, send));
  }

  close() { return this.redis.quit(); }
}

export class Producer extends Client {
  // Add a job and return its id. Durations are milliseconds. `backoff`: { k: "f" or "e", d: ms }.
  async add(name, data, { id = "", attempts, backoff, lease, delay, priority, key } = {}) {
    const stored = { a: attempts, b: backoff, l: lease, w: delay };
    const sent = { delay, priority, key, cost: key && 1000 };
    const opts = isGiven(stored) ? packed(stored) : "";
    if (!id && !isGiven(sent)) {
      return String((await this.once("addPlain", () => [this.incarnation, name, opts, 1, packed(data)]))[1]);
    }
    const extra = isGiven(sent) ? packed(sent) : "";
    const job = [id, name, packed(data), opts, extra];
    const [, first, ids, outcomes] = await this.once("addJob", () => [1, ...job, this.incarnation]);
    return String(outcomes[2] ?? (id || ids[0] || first));
  }

  addTask(name, args, options) { return this.add(name, { a: [], k: args }, options); }
}

export class Worker extends Client {
  // `handlers`: functions of the data and the job, by the name of the job. `lease`: milliseconds.
  constructor(url, queue, handlers, { slots = 10, lease = 30_000, prefix, version = "" } = {}) {
    super(url, queue, prefix);
    Object.assign(this, { handlers, slots, lease, version, name: `node-${randomUUID()}`, moreToSweep: 0 });
    this.runs = new Map(); // by entry; a run stays here, and its lease is renewed, until its outcome is stored
    this.outcomes = [];
    this.wake = () => {};
  }

  // Run jobs until `stop`, then sign off.
  async run() {
    await this.open();
    await this.renew();
    this.wakeups = this.redis.duplicate().on("error", () => {});
    this.wakeups.on("smessage", (_, text) => this.onMessage(text)).on("ready", () => this.wake());
    await this.wakeups.ssubscribe(`${this.base}:wake:${this.name}`);
    const timers = [this.every(SHORTEST_LEASE_MS / 4, () => this.isRenewalDue() && this.renew())];
    timers.push(this.every(Math.min(1_000, this.lease / 10), () => this.sweep()));
    for (let isLast = false; !isLast || this.runs.size; ) {
      const woken = new Promise((resolve) => (this.wake = resolve)); // a wake-up may come during the call
      isLast = this.isStopping; // a call without slots: from then on the server does not wake this worker
      const pause = await this.settleAndClaim();
      if (isLast && !this.runs.size) break;
      const timer = globalThis.setTimeout(this.wake, this.isStopping && !isLast ? 0 : pause);
      await woken;
      clearTimeout(timer);
    }
    timers.forEach((timer) => timer.abort());
    while ((await this.once("closeWorker", () => [this.name]))[0]); // in steps
    this.wakeups.disconnect();
    await this.close();
  }

  stop() {
    this.isStopping = true;
    this.wake();
  }

  onMessage(text) {
    const [kind, rest] = [text[0], text.slice(2)];
    if (kind === "w") this.wake();
    if (kind === "x" || kind === "r") this.runs.get(rest)?.abort.abort();
    if (kind === "c" && rest === "stop") this.stop();
  }

  // Store the outcomes of ended runs and start the claimed jobs. Return in how many milliseconds to call again.
  async settleAndClaim() {
    const batch = this.outcomes.splice(0, MOST_ENDED);
    const grouped = batch.filter((run) => run.isPlain && run.outcome[0] === "c");
    const others = batch.filter((run) => !grouped.includes(run));
    const ended = [...grouped, ...others];
    const slots = this.isStopping ? 0 : this.slots - this.runs.size + ended.length;
    const flags = `i${this.wakeups.status === "ready" ? "" : "u"}${this.isBroken ? "v" : ""}`;
    const ran = ["c", "f"].map((code) => ended.reduce((sum, run) => sum + (run.outcome[0] === code ? run.ms : 0), 0));
    const settled = [
      grouped.length,
      ...grouped.flatMap((run) => [run.since, run.outcome[2], 1, run.entry.slice(1), 1, run.outcome[1]]),
      others.length,
      ...others.flatMap(({ outcome: [code, payload, option], ...run }) =>
        [code, run.job.id, run.isPlain ? `${run.entry} ${run.since}` : run.entry, payload, option]),
    ];
    const head = [this.name, slots, this.lease, flags, ran.join(" ")];
    const reply = await this.once("settleAndClaim", () => [...head, this.incarnation, ...settled], this.name);
    const [now, , jobs, due, , posted, , count, claimed] = reply;
    ended.slice(0, count).forEach((run) => this.runs.delete(run.entry)); // stored, or refused: the lease was lost
    this.outcomes.unshift(...ended.slice(count).map((run) => Object.assign(run, { ms: 0 })));
    if (posted & 2) this.isBroken = true; // a failover has lost calls: compare the owners until a renewal
    for (let at = 0; at < jobs.length; at += jobs[at + 3] === 1 ? 8 : 4)
      claimedJobs(jobs.slice(at, at + 8)).forEach((job) => this.start(job, claimed));
    if (this.isBroken) this.renew().catch(console.error);
    if (this.outcomes.length) return 0;
    return due ? Math.min(POLL_MS, Math.max(0, due - now)) : POLL_MS;
  }

  start([token, name, data, rest, id, opts, , history], since) {
    const isPlain = rest !== 1; // then `rest` is its options, and its id is the number in the entry
    const entry = (isPlain ? "p" : "") + token;
    const stored = isPlain ? rest : opts;
    const options = stored?.length ? decode(stored) : {};
    const failures = !isPlain && Array.isArray(history) ? Number(history[0] ?? 0) : 0;
    const abort = new AbortController();
    const job = { id: String(isPlain ? token : id).replace(isPlain ? /-\d+$/ : "", ""), name: String(name), failures };
    const run = { entry, isPlain, since, options, abort, job: Object.assign(job, { signal: abort.signal }) };
    this.runs.set(entry, run);
    this.execute(run, data);
  }

  async execute(run, data) {
    const { job, options } = run;
    const started = Date.now();
    try {
      if (!this.handlers[job.name]) throw Object.assign(new Error(`no handler for ${job.name}`), { isFinal: true });
      const result = await this.handlers[job.name](decode(data), job);
      run.outcome = ["c", packed(result ?? null), policy(options.c, options.r)];
    } catch (error) {
      run.outcome = this.failed(job, options, error);
    }
    run.ms = Date.now() - started;
    this.outcomes.push(run);
    this.wake();
  }

  failed({ failures }, { a: attempts = 1, b: { d = 0, k, x = 2, m = Infinity } = {}, f, r }, error) {
    const { name = "Error", message = String(error), stack = "" } = error ?? {};
    const payload = packed([name, message.slice(0, 4_096), stack.slice(0, 16_384), "", "", this.version]);
    const reason = `${name}: ${message}`.replace(/[\x00-\x1f\x7f-\x9f]/g, " ").slice(0, 500);
    if (error?.isFinal) return ["f", payload, `${policy(f, r)};unrecoverable;${reason}`];
    if (failures + 1 >= attempts) return ["f", payload, `${policy(f, r)};retries_exhausted;${reason}`];
    return ["r", payload, `${Math.round(Math.min(m, k === "e" ? d * x ** failures : d))} ${reason}`];
  }

  shortestLease() {
    return Math.min(this.lease, ...[...this.runs.values()].map((run) => run.options.l ?? Infinity));
  }

  isRenewalDue() {
    return Date.now() - this.renewedAt >= Math.min(20_000, this.shortestLease() / 4);
  }

  async renew() {
    this.renewedAt = Date.now();
    const about = { host: hostname(), pid: process.pid, concurrency: this.slots, slots: this.slots };
    const info = packed({ ...about, started: STARTED, state: "running", version: this.version });
    const answered = this.isBroken ? 0 : (this.channels[this.name]?.number ?? 0);
    const held = [...this.runs.values()].flatMap((run) => [run.job.id, run.entry, run.isPlain ? run.since : ""]);
    const [lost, revoked] = await this.call("renewLeases", this.name, info, answered, 0, ...held);
    this.isBroken = false;
    for (const entry of [...lost, ...revoked]) this.runs.get(String(entry))?.abort.abort();
  }

  // Reclaim the jobs of dead workers. The server accepts one sweep per interval, whoever sends it.
  async sweep() {
    const [interval, gap] = [Math.min(1_000, this.lease / 10), this.lease / 2].map(Math.round);
    const [more] = await this.once("sweep", () => [3, interval, gap, this.moreToSweep]);
    this.moreToSweep = more ?? 0;
  }

  // Call a function again and again, with a pause in milliseconds, until the returned controller aborts.
  every(pause, action) {
    const controller = new AbortController();
    (async () => {
      while (!controller.signal.aborted) {
        await setTimeout(pause, null, { signal: controller.signal }).then(action).catch((error) => {
          if (error.name !== "AbortError") console.error(error);
        });
      }
    })();
    return controller;
  }
}
