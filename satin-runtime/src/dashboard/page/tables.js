// What is told in words and figures: tiles, reasons, traffic, what is kept, nodes, events.

function showTiles() {
  const { nodes, totals, sites, progress, run } = pool.picture;
  const number = (state) => nodes.filter((node) => node.state === state).length;
  const others = ['draining', 'no_answer', 'dead', 'left'].map((state) => [number(state), STATES[state]]).filter(([many]) => many > 0);
  const there = sites.filter((site) => site.nodes > 0).length;
  const states = others.map(([many, state]) => `${many} ${state}`);
  const seconds = Math.max(run.seconds, 1);
  // Nodes may be older than what is seen of the run.
  const workers = Math.min(run.worker_seconds / seconds, nodes.reduce((sum, node) => sum + node.threads, 0));
  const tiles = isSummary() ? [
    ['busy', coresAtWork(run.idle_share, workers), `on average${busyNote(run.idle_share)}`],
    ['nodes', wholes.format(run.nodes), [`in ${plural(sites.length, 'site')}`, ...states].join(', ')],
    ['jobs', count(totals.jobs), `${rate(totals.jobs / seconds)}/s on average, in ${duration(run.seconds)}`],
    ['bytes', bytes(totals.bytes_sent), `${bytes(totals.bytes_sent / seconds)}/s on average`],
  ] : [
    ['busy', coresAtWork(totals.idle_share, totals.threads), `of ${plural(totals.threads, 'worker')}${busyNote(totals.idle_share)}`],
    ['nodes', wholes.format(totals.nodes), [`in ${plural(there, 'site')}`, ...states].join(', ')],
    ['jobs', count(totals.jobs), `${rate(totals.jobs_per_s)}/s now`],
    ['bytes', bytes(totals.bytes_sent), `${bytes(totals.bytes_sent_per_s)}/s now`],
  ];
  for (const [name, figure, note] of tiles) { say($(`tile-${name}`), figure); say($(`tile-${name}-note`), note); }
  showProgress(progress);
}

// A worker has a core of its own, as long as its machine has no more workers than cores.
function coresAtWork(idleShare, workers) {
  if (idleShare === null) return '–';
  const atWork = (1 - idleShare) * workers;
  return atWork < 99.95 ? atWork.toFixed(1) : count(atWork);
}
const busyNote = (idleShare) => (idleShare === null ? '' : `, ${percent(1 - idleShare)} busy`);

function showProgress(progress) {
  const box = $('progress');
  const { ended, pool: name } = pool.picture;
  const done = ended !== null && ended === 0 ? 1 : progress?.done ?? 0;
  $('progress-fill').style.width = `${100 * done}%`;
  mark(box, 'data-guess', progress?.is_guess ? '' : null);
  mark(box, 'aria-valuenow', Math.round(100 * done));
  const words = progressWords(progress, ended);
  say($('progress-text'), words);
  mark(box, 'aria-valuetext', words);
  document.title = progress ? `${percent(progress.done)} · ${name} · Satin` : `${name} · Satin`;
}

function progressWords(progress, ended) {
  const seconds = duration(pool.picture.run.seconds);
  if (ended !== null) return `ended with exit code ${ended} after ${seconds}`;
  if (!progress) return isSummary() ? `the run took ${seconds}` : 'no root job is under way';
  const words = [`${(100 * progress.done).toFixed(1)} %`];
  if (progress.is_guess) words.push('a guess (stripes)');
  if (progress.seconds !== null) {
    words.push(`after ${duration(Math.round(progress.seconds))}`);
    if (!progress.is_guess && progress.done > 0.02) words.push(`about ${duration(Math.max(1, Math.round((progress.seconds * (1 - progress.done)) / progress.done)))} left`);
  }
  return words.join(', ');
}

// Workers change what they do many times a second: an average over some frames can be read.
const averages = new Map();

function averaged() {
  const { run } = pool.picture;
  if (isSummary()) return run.why_idle.map((time) => ({ ...time, share: time.seconds / Math.max(run.worker_seconds, 1e-9) }));
  const weight = averages.size === 0 ? 1 : 0.12;
  const now = new Map(pool.picture.why_idle.map((reason) => [reason.reason, reason]));
  for (const [name, reason] of now) if (!averages.has(name)) averages.set(name, { ...reason, mean: 0 });
  for (const [name, average] of averages) average.mean += weight * ((now.get(name)?.workers ?? 0) - average.mean);
  return [...averages.values()].filter((average) => average.mean >= 0.05).sort((a, b) => b.mean - a.mean);
}

function showReasons() {
  const list = $('reasons');
  const { totals, run } = pool.picture;
  const why_idle = averaged();
  const idle = totals.idle_share === null ? 'No figures yet.' : `${percent(totals.idle_share)} of the time of all workers. By reason, on average over the last seconds:`;
  say($('idle-conclusion'), isSummary() ? `The whole run: ${run.conclusion}.` : idle);
  const seen = why_idle.map((reason) => reason.reason).join();
  if (list.dataset.seen !== seen || list.childElementCount === 0) {
    list.dataset.seen = seen;
    list.replaceChildren(...why_idle.map((reason) => make('li', {},
      make('div', { class: 'row' }, make('span', {}, reason.words[0].toUpperCase() + reason.words.slice(1)), make('b')),
      make('div', { class: 'bar' }, make('i')),
      make('p', { class: 'note' }, ...code(reason.advice)))));
    if (why_idle.length === 0) list.append(make('li', { class: 'empty' }, 'Every worker that has told what it does has something to run.'));
  }
  why_idle.forEach((reason, place) => {
    const item = list.children[place];
    const share = reason.share ?? reason.mean / Math.max(1, totals.threads);
    const mean = reason.mean < 9.95 ? Number(reason.mean.toFixed(1)) : Math.round(reason.mean);
    say(item.querySelector('b'), reason.share === undefined ? plural(mean, 'worker') : percent(share));
    item.querySelector('i').style.width = `${Math.min(100, 100 * share)}%`;
  });
}

// Words between backquotes are code.
function code(text) {
  return text.split('`').map((part, place) => (place % 2 ? make('code', {}, part) : part));
}

// The darkest shade of a cell, in percent of the colour of work. Lower: small and large traffic look alike. Higher: the text of the page cannot be read on it.
const MOST_SHADE = 55;

function showMatrix() {
  const table = $('matrix');
  const { sites, traffic } = pool.picture;
  const of = new Map(traffic.map((pair) => [`${pair.from}\n${pair.to}`, pair]));
  const most = Math.max(1, ...traffic.map((pair) => pair.bytes));
  const shape = sites.map((site) => site.name).join('\n');
  if (table.dataset.shape !== shape) {
    table.dataset.shape = shape;
    const head = make('tr', {}, make('th', { scope: 'col' }, 'from ↓ to →'), ...sites.map((site) => make('th', { scope: 'col' }, site.name)));
    const rows = sites.map((site) => make('tr', {}, make('th', { scope: 'row' }, site.name), ...sites.map(() => make('td', {}, make('span'), make('small')))));
    table.replaceChildren(make('thead', {}, head), make('tbody', {}, ...rows));
  }
  sites.forEach((from, row) => sites.forEach((to, column) => {
    const cell = table.tBodies[0].rows[row].cells[column + 1];
    const pair = of.get(`${from.name}\n${to.name}`);
    say(cell.firstElementChild, pair ? bytes(pair.bytes) : '–');
    say(cell.lastElementChild, pair ? plural(pair.jobs, 'job') : '');
    // A square root: small traffic shows beside large.
    const strength = pair ? Math.round(MOST_SHADE * Math.sqrt(pair.bytes / most)) : 0;
    const shade = `color-mix(in srgb, var(--busy-1) ${strength}%, var(--soft))`;
    if (cell.dataset.shade !== shade) { cell.dataset.shade = shade; cell.style.background = shade; }
  }));
}

// Folded until something is lost; then it opens by itself, once.
const losses = { wasShown: false };

function showKept() {
  const { nodes, totals: { kept, tally } } = pool.picture;
  const died = nodes.filter((node) => node.state === 'dead').length;
  // Each node has the table of all of them.
  const waiting = Math.max(0, ...nodes.map((node) => node.kept.orphans));
  const isLost = died + tally.repairs + tally.orphans > 0;
  if (isLost && !losses.wasShown) { losses.wasShown = true; $('kept-more').open = true; }
  const words = [[died, `${plural(died, 'node')} died`], [tally.repairs, `${plural(tally.repairs, 'job')} run again`], [tally.hits, `${plural(tally.hits, 'result')} saved`]];
  say($('kept-note'), isLost ? words.filter(([many]) => many > 0).map(([, word]) => word).join(', ') : 'nothing was lost');
  showFigures($('kept-figures'), [
    ['Jobs run again: their node had gone', count(tally.repairs), tally.repairs === 0],
    ['Jobs whose requester had gone', count(tally.orphans), tally.orphans === 0],
    ['Their results that were used', count(tally.hits), tally.hits === 0],
    ['Their results that were gone too', count(tally.misses), tally.misses === 0],
    ['Their results still to be used', count(waiting), waiting === 0],
    ['Results with a copy on another node', count(kept.records), kept.records === 0],
    ['Results kept against losses', bytes(kept.record_bytes), kept.record_bytes === 0],
    ['Written to the store', kept.store_bytes === null ? 'no store' : bytes(kept.store_bytes), kept.store_bytes === null],
  ]);
}

// The table of nodes. Rows are made once, and moved when the order changes.
const FEW_ROWS = 40;
const busyOf = (node) => busyShare(node) ?? -1;
const bytesOf = (all, perSecond) => (isSummary() ? bytes(all) : `${bytes(perSecond)}/s`);
const COLUMNS = [
  ['Node', (node) => node.name, null],
  ['Site', (node) => node.site, null],
  ['State', (node) => STATES[node.state] + (node.is_master ? ', main' : ''), null],
  ['Workers', (node) => wholes.format(node.threads), (node) => node.threads],
  ['Busy', (node) => (busyOf(node) < 0 ? '–' : percent(busyOf(node))), busyOf],
  ['Jobs', (node) => (isSummary() ? count(node.jobs) : `${rate(node.jobs_per_s)}/s`), (node) => (isSummary() ? node.jobs : node.jobs_per_s)],
  ['Sent', (node) => bytesOf(node.bytes_sent, node.bytes_sent_per_s), (node) => (isSummary() ? node.bytes_sent : node.bytes_sent_per_s)],
  ['Received', (node) => bytesOf(node.bytes_received, node.bytes_received_per_s), (node) => (isSummary() ? node.bytes_received : node.bytes_received_per_s)],
  ['Why idle', (node) => node.why, null],
];
// The order at first is that of the other views.
const table = { column: 1, isDown: false, all: false, find: '', rows: new Map() };

function makeNodesHead() {
  const cells = COLUMNS.map(([name, , read], column) => make('th', { scope: 'col', class: read ? 'number' : null }, make('button', { type: 'button', onclick: () => sortBy(column) }, name)));
  $('nodes-table').tHead.replaceChildren(make('tr', {}, ...cells));
}

function sortBy(column) {
  table.isDown = table.column === column ? !table.isDown : COLUMNS[column][2] !== null;
  table.column = column;
  showNodes();
}

function nodesInOrder() {
  const words = table.find.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (node) => `${node.name} ${node.site} ${STATES[node.state]} ${node.why}`.toLowerCase();
  const found = pool.picture.nodes.filter((node) => words.every((word) => text(node).includes(word)));
  const [, show, read] = COLUMNS[table.column];
  const sign = table.isDown ? -1 : 1;
  return found.sort((a, b) => sign * (read ? read(a) - read(b) : byName(show(a), show(b))) || byPlace(a, b));
}

function rowOf(node) {
  let row = table.rows.get(node.id);
  if (!row) {
    const cells = COLUMNS.map(([name, , read]) => make('td', { class: name === 'Why idle' ? 'why' : read ? 'number' : null }));
    cells[0].append(make('button', { type: 'button', onclick: () => { choose(node.id); if (map.chosen === node.id) $('detail').scrollIntoView({ block: 'nearest' }); } }));
    row = make('tr', {}, ...cells);
    table.rows.set(node.id, row);
  }
  mark(row, 'data-state', node.state);
  COLUMNS.forEach(([, show], column) => say(column === 0 ? row.cells[0].firstElementChild : row.cells[column], show(node)));
  mark(row.cells[2], 'class', `state-${node.state}`);
  mark(row.cells[8], 'title', node.why || null);
  return row;
}

function showNodes() {
  const order = nodesInOrder();
  const shown = table.all ? order : order.slice(0, FEW_ROWS);
  const rows = shown.map(rowOf);
  const body = $('nodes-table').tBodies[0];
  if (rows.length !== body.rows.length || rows.some((row, place) => body.rows[place] !== row)) body.replaceChildren(...rows);
  [...$('nodes-table').tHead.rows[0].cells].forEach((cell, column) => mark(cell, 'aria-sort', column === table.column ? (table.isDown ? 'descending' : 'ascending') : null));
  const more = $('nodes-more');
  more.hidden = order.length <= FEW_ROWS;
  say(more, table.all ? `Show the first ${FEW_ROWS}` : `Show all ${order.length}`);
  for (const id of table.rows.keys()) if (table.rows.size > 2 * pool.picture.nodes.length) table.rows.delete(id);
}

const SIGNS = { node: '·', joined: '+', draining: '↘', left: '–', dead: '✕', cut_off: '⌁', branch: '⑂', comes_over: '↪', master: '★', root_started: '▸', root_finished: '✓', pool_ended: '■' };
const MOST_SHOWN = 300;
const log = { find: '' };

function itemOf(event) {
  return make('li', { 'data-kind': event.event }, make('time', { datetime: new Date(event.at_ms).toISOString() }, clock(event.at_ms)), make('span', { 'aria-hidden': 'true' }, SIGNS[event.event] ?? '·'), make('p', {}, event.text));
}

const isWanted = (event) => event.text.toLowerCase().includes(log.find);

function showAllEvents() {
  const wanted = pool.events.filter(isWanted).sort((a, b) => b.at_ms - a.at_ms).slice(0, MOST_SHOWN);
  $('log').replaceChildren(...wanted.map(itemOf));
  if (wanted.length === 0) $('log').append(make('li', { class: 'empty' }, make('p', {}, log.find ? 'No event has these words.' : 'Nothing has happened yet.')));
}

function showNewEvents() {
  const wanted = pool.newEvents.filter(isWanted).sort((a, b) => a.at_ms - b.at_ms);
  if (wanted.length > 20 || $('log').childElementCount === 0) return showAllEvents();
  if (wanted.length > 0) $('log').querySelector('.empty')?.remove();
  for (const event of wanted) $('log').prepend(itemOf(event));
  while ($('log').childElementCount > MOST_SHOWN) $('log').lastElementChild.remove();
}

function startTables() {
  makeNodesHead();
  $('nodes-find').addEventListener('input', (event) => { table.find = event.target.value; if (pool.picture) showNodes(); });
  $('nodes-more').addEventListener('click', () => { table.all = !table.all; showNodes(); });
  $('events-find').addEventListener('input', (event) => { log.find = event.target.value.toLowerCase(); showAllEvents(); });
}
