// The task stream: a row for each worker, a bar for each span. Only what is in sight is drawn.

// The time between two drawings in milliseconds, while it follows the pool. Longer: it jerks. Shorter: it keeps a laptop's fan busy.
const DRAW_EVERY = 66;
const SPANS_S = [2, 5, 10, 30, 60, 120, 300, 900, 3600, 14400, 86400];
const AXIS = 22;
const MOST_HEIGHT = 420;
// The number of arrows that are drawn at a time, the longest. Fewer: what feeds whom is not seen. More: nothing is seen below them.
const MOST_ARROWS = 60;
// The width of the paper, in pixels, for each of them. Less: a small screen is full of arrows. More: few are seen there.
const ARROW_ROOM = 20;
// The part of a row, in pixels, in which one arrow ends at most. Less: arrowheads hide the colours of the row. More: few arrows are seen.
const HEAD_ROOM = 28;

const stream = {
  span: 30000, right: null, rows: [], rowHeight: 16, height: 0, total: 0, shape: '', site: '',
  alone: null, hasArrows: choices.get('arrows') !== 'no', arrows: [], arrowsInSight: 0, pointed: null, places: new Map(), blocks: new Map(), isDirty: true, drawn: 0, frames: 0, isInSight: true, drag: null,
};

const isFollowing = () => stream.right === null;
const rightEdge = () => (isFollowing() ? poolNow() : stream.right);
const gutter = () => (innerWidth < 720 ? 88 : 132);

// A run that is younger than the time to be shown fills the paper: there is nothing to see before its begin.
const LEAST_SPAN = 2000;
function spanInSight() {
  return Math.min(stream.span, Math.max(LEAST_SPAN, rightEdge() - pool.first));
}

// Rows change when workers come or the filter does; that is seen by a short description of both.
function layRows() {
  const shape = `${pool.tracks.size} ${pool.picture.nodes.length} ${stream.site}`;
  if (shape === stream.shape) return;
  stream.shape = shape;
  const nodes = new Map(pool.picture.nodes.map((node) => [node.id, node]));
  const tracks = [...pool.tracks.values()].filter((track) => {
    const node = nodes.get(track.node);
    return node && (!stream.site || node.site === stream.site);
  });
  const place = (track) => nodes.get(track.node);
  tracks.sort((a, b) => byPlace(place(a), place(b)) || a.worker - b.worker);
  const fits = (height) => tracks.length * height <= MOST_HEIGHT - AXIS;
  stream.rowHeight = [18, 14, 10, 7, 5].find(fits) ?? 4;
  const gap = stream.rowHeight > 7 ? 5 : 2;
  let y = 3;
  let last = null;
  stream.rows = tracks.map((track) => {
    const node = place(track);
    if (last !== null && last !== node.id) y += gap;
    const row = { track, node, y, isFirst: last !== node.id };
    last = node.id;
    y += stream.rowHeight;
    return row;
  });
  stream.places = new Map(stream.rows.map((row) => [row.track.node * 65536 + row.track.worker, row]));
  stream.blocks = new Map();
  for (const { node, y: top } of stream.rows) {
    const block = stream.blocks.get(node.id) ?? { top };
    block.bottom = top + stream.rowHeight;
    stream.blocks.set(node.id, block);
  }
  stream.total = y + 3;
  stream.height = Math.max(60, Math.min(stream.total, MOST_HEIGHT - AXIS)) + AXIS;
  $('stream').style.height = `${stream.height + 2}px`;
  $('stream-space').style.height = `${Math.max(stream.total + AXIS, stream.height)}px`;
  $('stream-canvas').style.height = `${stream.height}px`;
  stream.isDirty = true;
}

function showStream() {
  layRows();
  showStreamSites();
  showSpan();
  showLegendShares();
  stream.isDirty = true;
  const idle = pool.tracks.size === 0 ? 'No worker has told yet what it does.' : '';
  say($('stream-note'), idle || `${plural(stream.rows.length, 'worker')}. Drag to move, Ctrl and wheel to zoom. What is long ago is shown coarser.`);
}

function showStreamSites() {
  const select = $('stream-site');
  const wanted = pool.picture.sites.map((site) => site.name);
  if (select.options.length === wanted.length + 1 && wanted.every((name, place) => select.options[place + 1].value === name)) return;
  const chosen = select.value;
  select.replaceChildren(make('option', { value: '' }, 'all'), ...wanted.map((name) => make('option', { value: name }, name)));
  select.value = wanted.includes(chosen) ? chosen : '';
}

function makeLegend() {
  if ($('legend').childElementCount > 0) return;
  for (const name of pool.activities) {
    const swatch = make('i');
    swatch.style.background = `var(--${name})`;
    const button = make('button', { type: 'button', 'aria-pressed': 'false', 'data-activity': name, onclick: () => showAlone(name) }, swatch, ACTIVITIES[name] ?? name, make('b'));
    $('legend').append(button);
  }
  const swatch = make('i', { class: 'arrow', 'aria-hidden': 'true' }, '→');
  const button = make('button', { type: 'button', id: 'legend-arrows', title: 'Jobs on their way from one node to another: show them or not', onclick: toggleArrows }, swatch, 'arrows', make('b'));
  $('legend').append(button);
  mark(button, 'aria-pressed', stream.hasArrows);
  for (const [kind, words] of Object.entries(MOMENTS)) $('legend').append(make('span', { class: 'moment', 'data-kind': kind, hidden: '' }, make('i', { 'aria-hidden': 'true' }), words));
}

// The dashed lines, of which the key shows those that there are.
const MOMENTS = { dead: 'a node died', gone: 'a node leaves' };
const momentOf = ({ event }) => (event === 'dead' ? 'dead' : event === 'left' || event === 'draining' ? 'gone' : null);

function showMoments() {
  const seen = new Set(pool.events.map(momentOf));
  for (const key of document.querySelectorAll('.moment')) key.hidden = !seen.has(key.dataset.kind);
}

const activityButtons = () => [...$('legend').children].filter((button) => button.dataset.activity);

function toggleArrows() {
  stream.hasArrows = !stream.hasArrows;
  choices.set('arrows', stream.hasArrows ? 'yes' : 'no');
  mark($('legend-arrows'), 'aria-pressed', stream.hasArrows);
  stream.isDirty = true;
}

function showAlone(name) {
  stream.alone = stream.alone === name ? null : name;
  for (const button of activityButtons()) mark(button, 'aria-pressed', button.dataset.activity === stream.alone);
  stream.isDirty = true;
}

// The shares of the time in sight, from the rates of the whole pool.
function showLegendShares() {
  makeLegend();
  const { start_ms, step_ms, bins } = pool.series;
  const right = rightEdge() + pool.base - start_ms;
  const [from, to] = [Math.max(0, Math.floor((right - spanInSight()) / step_ms)), Math.ceil(right / step_ms)];
  const sums = pool.activities.map(() => 0);
  for (const bin of bins.slice(from, Math.max(to, from + 1))) pool.activities.forEach((_, kind) => { sums[kind] += bin[kind + 2]; });
  const all = sums.reduce((a, b) => a + b, 0);
  activityButtons().forEach((button, kind) => say(button.lastElementChild, all ? percent(sums[kind] / all) : ''));
  showArrowCount();
  showMoments();
}

function showArrowCount() {
  const [drawn, inSight] = [stream.arrows.length, stream.arrowsInSight];
  say($('legend-arrows').lastElementChild, drawn < inSight ? `${count(drawn)} of ${count(inSight)}` : stream.hasArrows ? count(inSight) : '');
}

// Rectangles of each activity, collected so that the colour changes eight times and not for each.
const bars = [];

// What is thinner than a pixel shares it: the pixel gets the activity that most of its time went into.
const thin = { pixel: -1, sums: new Float64Array(32) };

function endPixel(x0, y) {
  if (thin.pixel < 0) return;
  let most = 0;
  thin.sums.forEach((sum, kind) => { if (sum > thin.sums[most]) most = kind; });
  bars[most].push(x0 + thin.pixel, y, 1);
  thin.sums.fill(0);
  thin.pixel = -1;
}

function collectBars(row, y, left, perMs, x0, width) {
  const { track } = row;
  const right = left + width / perMs;
  for (let place = track.firstAfter(left); place < track.length && track.starts[place] < right; place += 1) {
    const start = Math.max(0, (track.starts[place] - left) * perMs);
    const end = Math.min(width, (track.starts[place] + track.lengths[place] - left) * perMs);
    const pixel = Math.floor(start);
    if (end - start >= 1 || pixel !== thin.pixel) endPixel(x0, y);
    if (end - start < 1) {
      thin.pixel = pixel;
      thin.sums[track.kinds[place]] += end - start;
    } else bars[track.kinds[place]].push(x0 + start, y, end - start - (end - start > 4 ? 0.5 : 0));
  }
  endPixel(x0, y);
}

function drawStream(time) {
  if (!pool.picture || !stream.isInSight || document.hidden) return;
  const isMoving = isFollowing() && !pool.isFrozen && !pool.isOver;
  if (!stream.isDirty && !isMoving) return;
  if (time - stream.drawn < DRAW_EVERY) return;
  stream.drawn = time;
  stream.isDirty = false;
  stream.frames += 1;
  const canvas = $('stream-canvas');
  const width = $('stream').clientWidth;
  const context = fit(canvas, width, stream.height);
  context.fillStyle = colours.card;
  context.fillRect(0, 0, width, stream.height);
  const view = { x0: gutter(), width: width - gutter(), top: $('stream').scrollTop, bottom: stream.height - AXIS };
  view.span = spanInSight();
  view.perMs = view.width / view.span;
  view.left = rightEdge() - view.span;
  drawAxis(context, view);
  drawRows(context, view);
  drawMoments(context, view);
  drawArrows(context, view);
  // While the rows move, figures that change with each drawing cannot be read: then the next frame of the pool shows them.
  if (!isMoving) showArrowCount();
}

function drawRows(context, view) {
  const { rowHeight, rows } = stream;
  const thick = rowHeight > 7 ? rowHeight - 2 : Math.max(rowHeight - 1, 2);
  for (let kind = 0; kind < pool.activities.length; kind += 1) { bars[kind] ??= []; bars[kind].length = 0; }
  context.save();
  context.beginPath();
  context.rect(0, 0, view.x0 + view.width, view.bottom);
  context.clip();
  const chosen = stream.blocks.get(map.chosen);
  if (chosen) {
    context.fillStyle = colours.soft;
    context.fillRect(0, chosen.top - 1 - view.top, view.x0 + view.width, chosen.bottom - chosen.top);
  }
  let labelled = -99;
  context.font = '12px system-ui, sans-serif';
  context.textBaseline = 'middle';
  for (const row of rows) {
    const y = row.y - view.top;
    if (y < -rowHeight - 14 || y > view.bottom) continue;
    if (row.isFirst && y - labelled >= 13) { labelled = y; drawLabel(context, row, Math.max(y + Math.min(rowHeight, 16) / 2, 7), view); }
    collectBars(row, y, view.left, view.perMs, view.x0, view.width);
  }
  pool.activities.forEach((name, kind) => {
    const list = bars[kind];
    context.globalAlpha = stream.alone && stream.alone !== name ? 0.12 : 1;
    context.fillStyle = colours[name] || colours.muted;
    for (let place = 0; place < list.length; place += 3) context.fillRect(list[place], list[place + 1], list[place + 2], thick);
  });
  context.restore();
}

function drawLabel(context, { node }, y, view) {
  const state = pool.picture.nodes.find((now) => now.id === node.id)?.state ?? node.state;
  context.fillStyle = state === 'dead' || state === 'no_answer' ? colours.bad : state === 'left' ? colours.muted : colours.text;
  const sign = { dead: '✕ ', draining: '↘ ', no_answer: '? ', left: '– ' }[state] ?? '';
  const room = view.x0 - 14 - context.measureText(sign).width;
  context.fillText(sign + fitName(context, node.name, room), 8, y + 1);
}

function drawAxis(context, view) {
  const most = Math.max(2, Math.floor(view.width / 95));
  const steps = [100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 18e5, 36e5, 72e5, 216e5];
  const step = steps.find((step) => view.span / step <= most) ?? 432e5;
  context.font = '11px system-ui, sans-serif';
  context.textBaseline = 'middle';
  context.textAlign = 'center';
  const offset = pool.base % step;
  for (let at = Math.ceil((view.left + offset) / step) * step - offset; at < view.left + view.span; at += step) {
    const x = Math.round(view.x0 + (at - view.left) * view.perMs) + 0.5;
    context.strokeStyle = colours.soft;
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, view.bottom);
    context.stroke();
    context.fillStyle = colours.muted;
    if (x > view.x0 + 26 && x < view.x0 + view.width - 26) context.fillText(clock(pool.base + at, step < 1000), x, view.bottom + AXIS / 2 + 1);
  }
  context.textAlign = 'left';
  context.strokeStyle = colours.line;
  context.strokeRect(view.x0 + 0.5, -1, view.width + 2, view.bottom + 1.5);
}

// The moments at which nodes went: lines across all rows.
function drawMoments(context, view) {
  context.setLineDash([3, 3]);
  for (let place = pool.events.length - 1; place >= Math.max(0, pool.events.length - 200); place -= 1) {
    const kind = momentOf(pool.events[place]);
    if (!kind) continue;
    const at = pool.events[place].at_ms - pool.base;
    if (at < view.left || at > view.left + view.span) continue;
    const x = Math.round(view.x0 + (at - view.left) * view.perMs) + 0.5;
    context.strokeStyle = kind === 'dead' ? colours.bad : colours.warn;
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, view.bottom);
    context.stroke();
  }
  context.setLineDash([]);
}

// Where an arrow is drawn: from a row of the node that gave the job to the row of the worker. No worker in particular gives a job, so the row is the nearest.
function lineOf(arrow, view) {
  const [row, block] = [stream.places.get(arrow.node * 65536 + arrow.worker), stream.blocks.get(arrow.from)];
  if (!row || !block) return null;
  const x = (at) => view.x0 + (at - view.left) * view.perMs;
  const middle = (top) => top + stream.rowHeight / 2 - 1 - view.top;
  const giver = block.bottom <= row.y ? block.bottom - stream.rowHeight : block.top;
  return { arrow, from: [x(arrow.sent), middle(giver)], to: [x(arrow.begun), middle(row.y)] };
}

// The arrows to be drawn, the longest of those in sight that leave room for each other.
function chooseArrows(view) {
  stream.arrows = [];
  stream.arrowsInSight = 0;
  if (!stream.hasArrows) return;
  const right = view.left + view.width / view.perMs;
  const isInSight = (arrow) => arrow.begun >= view.left && arrow.sent <= right;
  const inSight = pool.arrows.filter(isInSight).map((arrow) => lineOf(arrow, view)).filter(Boolean);
  stream.arrowsInSight = inSight.length;
  inSight.sort(({ arrow: a }, { arrow: b }) => b.begun - b.sent - (a.begun - a.sent));
  const most = Math.min(MOST_ARROWS, Math.ceil(view.width / ARROW_ROOM));
  const taken = new Set();
  for (const line of inSight) {
    if (stream.arrows.length === most) break;
    const room = `${line.to[1]} ${Math.floor(line.to[0] / HEAD_ROOM)}`;
    if (taken.has(room)) continue;
    taken.add(room);
    stream.arrows.push(line);
  }
}

function drawArrows(context, view) {
  chooseArrows(view);
  context.save();
  context.beginPath();
  context.rect(view.x0, 0, view.width, view.bottom);
  context.clip();
  // Many arrows are paler, so that what workers do is seen below them.
  const alpha = Math.max(0.45, 0.85 * Math.min(1, Math.sqrt(20 / Math.max(1, stream.arrows.length))));
  for (const { from, to } of stream.arrows) drawArrow(context, from, to, 1, alpha);
  const pointed = stream.pointed && lineOf(stream.pointed, view);
  if (pointed) drawArrow(context, pointed.from, pointed.to, 2, 1);
  context.restore();
}

// A dot in the row of the node that gave the job, a line, and a head in the row of the worker.
function drawArrow(context, [x0, y0], [x1, y1], width, alpha) {
  const length = Math.hypot(x1 - x0, y1 - y0) || 1;
  const head = Math.min(length, stream.rowHeight > 7 ? 6 : 4);
  const [dx, dy] = [(x1 - x0) / length * head, (y1 - y0) / length * head];
  context.globalAlpha = alpha;
  // An edge in the colour of the card, so that it stands out from bars of any colour.
  for (const [colour, more] of [[colours.card, 1], [colours.text, 0]]) {
    context.strokeStyle = context.fillStyle = colour;
    context.lineWidth = width + more;
    context.beginPath();
    context.moveTo(x0, y0);
    context.lineTo(x1 - dx / 2, y1 - dy / 2);
    context.stroke();
    context.beginPath();
    context.arc(x0, y0, width + 0.5, 0, 2 * Math.PI);
    context.moveTo(x1, y1);
    context.lineTo(x1 - dx - dy / 3, y1 - dy + dx / 3);
    context.lineTo(x1 - dx + dy / 3, y1 - dy - dx / 3);
    context.closePath();
    if (more) context.stroke();
    else context.fill();
  }
  context.globalAlpha = 1;
}

// The arrow at that place, if one is within a few pixels.
function arrowAt(x, y) {
  let [nearest, best] = [null, 4];
  for (const { arrow, from: [x0, y0], to: [x1, y1] } of stream.arrows) {
    const square = (x1 - x0) ** 2 + (y1 - y0) ** 2 || 1;
    const part = Math.max(0, Math.min(1, ((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / square));
    const distance = Math.hypot(x - x0 - part * (x1 - x0), y - y0 - part * (y1 - y0));
    if (distance < best) [nearest, best] = [arrow, distance];
  }
  return nearest;
}

function wordsOfArrow(arrow) {
  const name = (id) => pool.picture.nodes.find((node) => node.id === id)?.name ?? 'a node that is gone';
  const ms = (from, to) => duration((to - from) / 1000);
  const parts = [`${ms(arrow.sent, arrow.came)} on its way`];
  if (arrow.ready > arrow.came) parts.push(`${ms(arrow.came, arrow.ready)} until its data were there`);
  if (arrow.begun > arrow.ready) parts.push(`${ms(arrow.ready, arrow.begun)} until a worker took it`);
  return `${pool.functions[arrow.of]} from ${name(arrow.from)}: ${parts.join(', ')}`;
}

function pointAt(arrow) {
  if (stream.pointed === arrow) return;
  stream.pointed = arrow;
  stream.isDirty = true;
}

function zoom(factor, around = 1) {
  const place = SPANS_S.findIndex((s) => s * 1000 >= stream.span);
  const next = SPANS_S[Math.max(0, Math.min(SPANS_S.length - 1, place + (factor > 1 ? 1 : -1)))] * 1000;
  if (!isFollowing()) stream.right += (next - stream.span) * (1 - around);
  stream.span = next;
  if (isFollowing()) showControls();
  else move(0);
}

function move(ms) {
  const [right, now] = [rightEdge() + ms, poolNow()];
  // Not before the begin, and not behind the end.
  const earliest = Math.min(now, pool.first + stream.span);
  stream.right = !pool.isFrozen && right >= now ? null : Math.min(now, Math.max(right, earliest));
  showControls();
}

function pause() {
  stream.right = isFollowing() ? poolNow() : null;
  showControls();
}

function showSpan() {
  const ms = pool.picture ? spanInSight() : stream.span;
  say($('stream-span'), duration(ms < stream.span ? Math.round(ms / 1000) : ms / 1000));
}

function showControls() {
  showSpan();
  mark($('stream-pause'), 'aria-pressed', !isFollowing());
  say($('stream-pause'), isFollowing() ? 'Pause' : 'Follow');
  stream.isDirty = true;
  if (pool.picture) showLegendShares();
}

function tipOfStream(event) {
  pointAt(null);
  if (stream.drag || !pool.picture) return hideTip();
  const box = $('stream').getBoundingClientRect();
  const [x, y] = [event.clientX - box.left - gutter(), event.clientY - box.top + $('stream').scrollTop];
  const arrow = x >= 0 && event.clientY <= box.bottom - AXIS ? arrowAt(x + gutter(), event.clientY - box.top) : null;
  if (arrow) {
    pointAt(arrow);
    const { node, track } = stream.places.get(arrow.node * 65536 + arrow.worker);
    return showTip(`${node.name}, worker ${track.worker}\n${wordsOfArrow(arrow)}`, event.clientX, event.clientY);
  }
  const row = stream.rows.find((row) => y >= row.y && y < row.y + stream.rowHeight);
  if (!row || event.clientY > box.bottom - AXIS) return hideTip();
  const who = `${row.node.name}, worker ${row.track.worker}`;
  if (x < 0) return showTip(who, event.clientX, event.clientY);
  const at = rightEdge() - spanInSight() * (1 - x / (box.width - gutter()));
  const place = row.track.firstAfter(at);
  if (place >= row.track.length || row.track.starts[place] > at) return showTip(`${who}\nnothing told`, event.clientX, event.clientY);
  const activity = pool.activities[row.track.kinds[place]];
  const job = activity === 'run_stolen' ? jobAt(row.track, place, at) : null;
  pointAt(job);
  const of = pool.functions[row.track.functions[place]];
  const what = `${ACTIVITIES[activity]}${of ? ` of ${of}` : ''}, ${duration(row.track.lengths[place] / 1000)}, from ${clock(pool.base + row.track.starts[place], true)}`;
  return showTip([who, what, ...(job ? [wordsOfArrow(job)] : [])].join('\n'), event.clientX, event.clientY);
}

// Samples see a job at most so many milliseconds after its begin.
const SEEN_LATE_MS = 25;

// The job that began last before that time within that span, of those with an arrow.
function jobAt(track, place, at) {
  const from = track.starts[place] - SEEN_LATE_MS;
  let last = null;
  for (const arrow of pool.arrows) {
    if (arrow.node !== track.node || arrow.worker !== track.worker || arrow.begun < from || arrow.begun > at) continue;
    if (!last || arrow.begun > last.begun) last = arrow;
  }
  return last;
}

function startStream() {
  const box = $('stream');
  $('stream-in').addEventListener('click', () => zoom(0.5));
  $('stream-out').addEventListener('click', () => zoom(2));
  $('stream-earlier').addEventListener('click', () => move(-spanInSight() / 2));
  $('stream-later').addEventListener('click', () => move(spanInSight() / 2));
  $('stream-pause').addEventListener('click', pause);
  $('stream-site').addEventListener('change', (event) => { stream.site = event.target.value; layRows(); });
  box.addEventListener('scroll', () => { stream.isDirty = true; });
  box.addEventListener('keydown', (event) => {
    const keys = {
      ArrowLeft: () => move(-spanInSight() / 4), ArrowRight: () => move(spanInSight() / 4), '+': () => zoom(0.5), '=': () => zoom(0.5), '-': () => zoom(2),
      ' ': pause, End: () => { stream.right = null; showControls(); }, Home: () => move(pool.first - rightEdge()),
    };
    const act = !event.ctrlKey && !event.metaKey && keys[event.key];
    if (act) { act(); event.preventDefault(); }
  });
  box.addEventListener('wheel', (event) => {
    if (event.ctrlKey) zoom(event.deltaY > 0 ? 2 : 0.5, (event.clientX - box.getBoundingClientRect().left - gutter()) / (box.clientWidth - gutter()));
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) move(((event.deltaX || event.deltaY) / box.clientWidth) * spanInSight());
    else return;
    event.preventDefault();
  }, { passive: false });
  box.addEventListener('pointerdown', (event) => {
    if (event.button === 0) stream.drag = { x: event.clientX, right: rightEdge(), hasMoved: false };
  });
  box.addEventListener('pointermove', (event) => {
    const { drag } = stream;
    if (drag && Math.abs(event.clientX - drag.x) > 3) {
      if (!drag.hasMoved) { drag.hasMoved = true; box.setPointerCapture(event.pointerId); }
      stream.right = drag.right;
      move(((drag.x - event.clientX) / (box.clientWidth - gutter())) * spanInSight());
    }
    tipOfStream(event);
  });
  for (const name of ['pointerup', 'pointercancel']) box.addEventListener(name, () => { stream.drag = null; });
  box.addEventListener('pointerleave', () => { pointAt(null); hideTip(); });
  new ResizeObserver(() => { stream.isDirty = true; }).observe(box);
  new IntersectionObserver((entries) => { stream.isInSight = entries[0].isIntersecting; stream.isDirty = true; }).observe(box);
  showControls();
}
