// Locks and queues of Node libraries, measured like the others: jobs as lines of JSON on stdin, answers on stdout.
'use strict';
const readline = require('readline');
const Redis = require('ioredis').default || require('ioredis');

const TTL_MS = 30000;
const now = () => Number(process.hrtime.bigint());
const say = (value) => process.stdout.write(JSON.stringify(value) + '\n');
const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function gate() {
  say({ ready: true });
  const { value } = await lines.next();
  if (value !== 'go') throw new Error('expected go');
}

function percentile(values, share) {
  values.sort((one, other) => one - other);
  return values[Math.round((values.length - 1) * share)];
}

function cpu() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

// redlock on a single server; a waiter asks every 5 ms, for ever.
function locker(port) {
  const Redlock = require('redlock').default || require('redlock');
  const redlock = new Redlock([new Redis({ port })], { retryCount: -1, retryDelay: 5, retryJitter: 5 });
  redlock.on('error', () => {});
  return redlock;
}

async function pair(job) {
  const redlock = locker(job.ports[0]);
  const once = async (name) => (await redlock.acquire([name], TTL_MS)).release();
  for (let index = 0; index < 100; index += 1) await once(`${job.name}/warm`);
  await gate();
  const times = [];
  const [used, begun] = [cpu(), now()];
  const until = begun + job.millis * 1e6;
  await Promise.all(Array.from({ length: job.workers }, async (_, worker) => {
    for (let last = now(); last < until;) {
      await once(`${job.name}/${worker}`);
      const ended = now();
      times.push(ended - last);
      last = ended;
    }
  }));
  const [spent, wall, count] = [cpu() - used, now() - begun, times.length];
  return {
    n: count,
    per_s: count / (wall / 1e9),
    p50_us: percentile(times, 0.5) / 1e3,
    p99_us: percentile(times, 0.99) / 1e3,
    client_us: (spent * 1e6) / count,
    cpu_s: spent,
    wall_s: wall / 1e9,
  };
}

async function contend(job) {
  const redlock = locker(job.ports[0]);
  await (await redlock.acquire(['compare/warm-up'], TTL_MS)).release().catch(() => {});
  await gate();
  const events = [];
  const [used, begun] = [cpu(), now()];
  const until = begun + job.millis * 1e6;
  await Promise.all(Array.from({ length: job.workers }, async (_, waiter) => {
    for (let asked = now(); asked < until; asked = now()) {
      const lock = await redlock.acquire([job.name], TTL_MS);
      const got = now();
      const gave = now();
      await lock.release();
      events.push([waiter, asked, got, gave, 0]);
    }
  }));
  return { events, begun, until, cpu_s: cpu() - used };
}

// BullMQ: `workers` at once; a batch goes through addBulk.
async function throughput(job) {
  const { Queue, Worker } = require('bullmq');
  const connection = { port: job.ports[0], maxRetriesPerRequest: null };
  const name = job.name.replace(/[:/]/g, '-');
  const queue = new Queue(name, { connection, defaultJobOptions: { removeOnComplete: true } });
  await queue.waitUntilReady();
  const payload = { text: 'x'.repeat(100) };
  await gate();
  const [used, begun] = [cpu(), now()];
  let left = Math.floor(job.count / job.batch);
  await Promise.all(Array.from({ length: job.workers }, async () => {
    while (left > 0) {
      left -= 1;
      if (job.batch === 1) await queue.add('message', payload);
      else await queue.addBulk(Array.from({ length: job.batch }, () => ({ name: 'message', data: payload })));
    }
  }));
  const pushed = now();
  let done = 0;
  const worker = await new Promise((resolve) => {
    const running = new Worker(name, async () => {
      done += 1;
      if (done === job.count) resolve(running);
    }, { connection, concurrency: job.workers });
  });
  await worker.close();
  const drained = now();
  await queue.close();
  const perS = (nanos) => job.count / (nanos / 1e9);
  return {
    n: job.count,
    push_per_s: perS(pushed - begun),
    drain_per_s: perS(drained - pushed),
    total_per_s: perS(drained - begun),
    client_us: ((cpu() - used) * 1e6) / job.count,
    cpu_s: cpu() - used,
  };
}

const JOBS = { pair, contend, throughput };

(async () => {
  for (;;) {
    const { value, done } = await lines.next();
    if (done) process.exit(0);
    const job = JSON.parse(value);
    try {
      say(await JOBS[job.what](job));
    } catch (error) {
      say({ error: String(error) });
    }
  }
})();
