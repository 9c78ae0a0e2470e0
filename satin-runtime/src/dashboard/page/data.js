// What the page knows of the pool: the frames that it was sent, put together.

// The number of spans that are kept, for all workers together. Fewer: little to look back at. More: memory.
const MAX_SPANS = 400000;
const MAX_EVENTS = 5000;
const MAX_ARROWS = 20000;

// The spans of one worker, by time.
class Track {
  constructor(node, worker) {
    this.node = node;
    this.worker = worker;
    this.length = 0;
    this.resize(32);
  }
  resize(capacity) {
    const [starts, lengths, kinds, functions] = [this.starts, this.lengths, this.kinds, this.functions];
    this.starts = new Float64Array(capacity);
    this.lengths = new Uint32Array(capacity);
    this.kinds = new Uint8Array(capacity);
    this.functions = new Int16Array(capacity);
    if (starts) {
      this.starts.set(starts.subarray(0, this.length));
      this.lengths.set(lengths.subarray(0, this.length));
      this.kinds.set(kinds.subarray(0, this.length));
      this.functions.set(functions.subarray(0, this.length));
    }
  }
  // A span with the start of the last one takes its place: it has grown.
  add(start, length, kind, of, most) {
    let place = this.length;
    if (place > 0 && this.starts[place - 1] >= start) place -= 1;
    if (place === this.starts.length) {
      if (place < most) this.resize(Math.min(2 * place, most));
      else place = this.dropOldest();
    }
    this.starts[place] = start;
    this.lengths[place] = length;
    this.kinds[place] = kind;
    this.functions[place] = of;
    this.length = place + 1;
  }
  dropOldest() {
    const dropped = Math.ceil(this.length / 4);
    for (const list of [this.starts, this.lengths, this.kinds, this.functions]) list.copyWithin(0, dropped, this.length);
    this.length -= dropped;
    return this.length;
  }
  // The place of the first span that ends after this time.
  firstAfter(time) {
    let [low, high] = [0, this.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.starts[middle] + this.lengths[middle] > time) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}

const pool = {
  picture: null,
  activities: [],
  // The time from which all times of spans count.
  base: 0,
  tracks: new Map(),
  // The ways of jobs from node to node.
  arrows: [],
  functions: [],
  events: [],
  newEvents: [],
  series: { start_ms: 0, step_ms: 1000, bins: [] },
  first: Infinity,
  // The difference between the clock of the pool and that of this page.
  skew: null,
  heard: 0,
  isFrozen: false,
  canDrain: false,
};

function forget() {
  pool.tracks.clear();
  pool.arrows = [];
  pool.events = [];
  pool.newEvents = [];
  pool.series = { start_ms: 0, step_ms: 1000, bins: [] };
  pool.first = Infinity;
}

// One order for all views: by site, then by name, numbers as numbers.
const byPlace = (a, b) => byName(a.site, b.site) || byName(a.name, b.name) || a.id - b.id;

function take(frame) {
  pool.picture = frame.picture;
  pool.picture.nodes.sort(byPlace);
  pool.picture.sites.sort((a, b) => byName(a.name, b.name));
  pool.activities = frame.activities;
  pool.canDrain = frame.can_drain && !pool.isFrozen;
  pool.heard = performance.now();
  const skew = frame.picture.now_ms - performance.now();
  pool.skew = pool.skew === null || Math.abs(skew - pool.skew) > 5000 ? skew : pool.skew + 0.1 * (skew - pool.skew);
  if (pool.base === 0 && frame.base_ms > 0) pool.base = frame.base_ms;
  takeSpans(frame);
  takeArrows(frame);
  pool.newEvents = frame.events;
  pool.events.push(...frame.events);
  if (pool.events.length > MAX_EVENTS) pool.events.splice(0, pool.events.length - MAX_EVENTS);
  const { start_ms, step_ms, from, bins } = frame.series;
  pool.series.start_ms = start_ms;
  pool.series.step_ms = step_ms;
  pool.series.bins.length = Math.min(pool.series.bins.length, from);
  pool.series.bins.push(...bins);
}

function takeSpans({ spans, base_ms, picture }) {
  if (spans.length === 0) return;
  let workers = 0;
  for (const node of picture.nodes) workers += node.threads;
  const most = Math.max(128, Math.floor(MAX_SPANS / Math.max(1, workers)));
  const offset = base_ms - pool.base;
  pool.first = Math.min(pool.first, offset);
  for (let place = 0; place < spans.length; place += 6) {
    const key = spans[place] * 65536 + spans[place + 1];
    let track = pool.tracks.get(key);
    if (!track) {
      track = new Track(spans[place], spans[place + 1]);
      pool.tracks.set(key, track);
    }
    track.add(spans[place + 2] + offset, spans[place + 3], spans[place + 4], spans[place + 5], most);
  }
}

function takeArrows({ arrows, functions, base_ms }) {
  pool.functions = functions;
  const offset = base_ms - pool.base;
  for (let place = 0; place < arrows.length; place += 8) {
    const [from, node, worker, of, at, sent, came, ready] = arrows.slice(place, place + 8);
    const begun = at + offset;
    pool.arrows.push({ from, node, worker, of, begun, sent: begun - sent, came: begun - came, ready: begun - ready });
  }
  if (pool.arrows.length > MAX_ARROWS) pool.arrows.splice(0, pool.arrows.length - MAX_ARROWS);
}

// The time of the pool at this moment, a little late: what happens now has not been told yet.
const LAG_MS = 1800;
function poolNow() {
  if (pool.skew === null) return 0;
  if (pool.isFrozen || pool.isOver) return pool.picture.now_ms - pool.base;
  const sinceHeard = Math.min(performance.now(), pool.heard + 2500);
  return sinceHeard + pool.skew - LAG_MS - pool.base;
}

// The run is over: what it was as a whole says more than its last moment, in which nobody is there.
const isSummary = () => pool.isFrozen || pool.isOver || (pool.picture.ended !== null && pool.picture.totals.nodes === 0);
const busyShare = (node) => {
  const idle = isSummary() ? node.run_idle_share : isThere(node) ? node.idle_share : null;
  return idle === null ? null : 1 - idle;
};
const isThere = (node) => node.state === 'joined' || node.state === 'draining' || node.state === 'no_answer';
const STATES = { joined: 'joined', draining: 'draining', left: 'left', dead: 'dead', no_answer: 'no answer' };
const ACTIVITIES = {
  run: 'runs own job', run_stolen: 'runs stolen job', steal_near: 'steals near', steal_far: 'steals far',
  wait: 'waits at sync', transfer: 'transfers', repair: 'repairs', idle: 'idle',
};
const BUSY = new Set(['run', 'run_stolen', 'repair']);
