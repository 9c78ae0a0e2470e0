// The map of the pool: a box for each site, a cell for each node.

// With more nodes than this, cells are squares without names.
const NAMED_NODES = 48;

const map = { sites: new Map(), nodes: new Map(), chosen: null };

function showMap() {
  const { nodes, sites } = pool.picture;
  $('pool').classList.toggle('many', nodes.length > NAMED_NODES);
  const known = new Set(sites.map((site) => site.name));
  for (const [name, box] of map.sites) {
    if (!known.has(name)) { box.root.remove(); map.sites.delete(name); }
  }
  sites.forEach(showSite);
  const seen = new Set(nodes.map((node) => node.id));
  for (const [id, cell] of map.nodes) {
    if (!seen.has(id)) { cell.item.remove(); map.nodes.delete(id); }
  }
  // Nodes come in the order in which they are shown: each is put behind the one before.
  const last = new Map();
  for (const node of nodes) {
    const { item } = showNode(node);
    keepPlace(map.sites.get(node.site).list, item, last.get(node.site));
    last.set(node.site, item);
  }
  if (sites.length === 0 && $('sites').childElementCount === 0) {
    $('sites').append(make('p', { class: 'empty' }, 'No node has been seen yet.'));
  } else if (sites.length > 0) $('sites').querySelector('.empty')?.remove();
  showDetail();
}

// Puts an element behind that one, or first, unless it is there.
function keepPlace(list, item, before) {
  const at = before ? before.nextSibling : list.firstChild;
  if (at !== item) list.insertBefore(item, at);
}

function showSite(site, place) {
  let box = map.sites.get(site.name);
  if (!box) {
    box = { title: make('h3', {}, site.name), note: make('span'), list: make('ul') };
    box.drain = make('button', { type: 'button', onclick: () => askDrainSite(site.name) }, 'Drain site');
    box.root = make('article', { class: 'site', 'aria-label': `Site ${site.name}` }, make('header', {}, box.title, box.note, box.drain), box.list);
    map.sites.set(site.name, box);
  }
  keepPlace($('sites'), box.root, place > 0 ? map.sites.get(pool.picture.sites[place - 1].name).root : null);
  const { nodes, threads, idle } = isSummary() ? summaryOf(site) : { ...site, idle: site.idle_share };
  const busy = idle === null ? '' : `, ${percent(1 - idle)} busy`;
  say(box.note, `${plural(nodes, 'node')}, ${plural(threads, 'worker')}${busy}`);
  box.drain.hidden = !pool.canDrain || site.nodes === 0;
}

// All nodes of the site that were there at any time.
function summaryOf(site) {
  const here = pool.picture.nodes.filter((node) => node.site === site.name);
  const told = here.filter((node) => node.run_idle_share !== null);
  const sum = (list, read) => list.reduce((all, node) => all + read(node), 0);
  const threads = sum(told, (node) => node.threads);
  return {
    nodes: here.length,
    threads: sum(here, (node) => node.threads),
    idle: threads === 0 ? null : sum(told, (node) => node.threads * node.run_idle_share) / threads,
  };
}

function showNode(node) {
  let cell = map.nodes.get(node.id);
  if (!cell) {
    const parts = nameParts(node.name).map((part) => make('span', {}, part));
    cell = { name: make('b', {}, ...parts), note: make('small') };
    const bar = make('span', { class: 'bar' }, make('i'));
    cell.button = make('button', { type: 'button', class: 'node', onclick: () => choose(node.id) }, cell.name, cell.note, bar);
    cell.item = make('li', {}, cell.button);
    map.nodes.set(node.id, cell);
  }
  const busy = busyShare(node) ?? 0;
  const note = noteOf(node);
  say(cell.note, note);
  mark(cell.button, 'data-state', node.state);
  mark(cell.button, 'data-master', node.is_master ? '' : null);
  mark(cell.button, 'aria-pressed', map.chosen === node.id);
  const label = `${node.name}, ${STATES[node.state]}${node.is_master ? ', runs main' : ''}, ${note}`;
  mark(cell.button, 'aria-label', label);
  mark(cell.button, 'title', label);
  const rounded = (Math.round(busy * 50) / 50).toString();
  if (cell.busy !== rounded) { cell.busy = rounded; cell.button.style.setProperty('--busy', rounded); }
  return cell;
}

function noteOf(node) {
  const busy = busyShare(node);
  const state = node.state === 'joined' ? [] : [STATES[node.state]];
  if (busy !== null && node.state !== 'dead') return [...state, `${percent(busy)} busy`].join(', ');
  return state[0] ?? 'no figures yet';
}

function choose(id) {
  map.chosen = map.chosen === id ? null : id;
  showMap();
  showNodes();
  stream.isDirty = true;
}

function showDetail() {
  const detail = $('detail');
  const node = pool.picture.nodes.find((node) => node.id === map.chosen);
  detail.hidden = !node;
  if (!node) { detail.replaceChildren(); detail.dataset.id = ''; return; }
  if (detail.dataset.id !== String(node.id)) {
    detail.dataset.id = node.id;
    const drain = make('button', { type: 'button', id: 'drain-node', onclick: () => askDrainNode(node.name) }, `Drain ${node.name}`);
    const close = make('button', { type: 'button', class: 'quiet', onclick: () => choose(node.id) }, 'Close');
    detail.replaceChildren(
      make('header', {}, make('h3', {}, node.name), drain, close),
      make('dl', { class: 'figures' }),
      make('p', { class: 'note', id: 'detail-why' }),
    );
  }
  $('drain-node').hidden = !pool.canDrain || node.state !== 'joined';
  say($('detail-why'), node.why || (isThere(node) ? 'All of its workers have something to run.' : ''));
  showFigures(detail.querySelector('dl'), detailsOf(node));
}

function detailsOf(node) {
  return [
    ['State', STATES[node.state] + (node.is_master ? ', runs main' : '')],
    ['Site', node.site],
    ['Address', node.addr],
    ['Workers', wholes.format(node.threads)],
    ['Busy', busyShare(node) === null ? 'not known' : percent(busyShare(node))],
    ['Jobs of others, so far', count(node.jobs)],
    ['Jobs given to others', count(node.given)],
    ['Sent', `${bytes(node.bytes_sent)} (${bytes(node.bytes_sent_per_s)}/s)`],
    ['Received', `${bytes(node.bytes_received)} (${bytes(node.bytes_received_per_s)}/s)`],
    ['A theft takes (median)', node.steal_us_p50 ? duration(node.steal_us_p50 / 1e6) : 'no thefts yet'],
    ['Shared values here', node.kept.values ? `${count(node.kept.values)} (${bytes(node.kept.value_bytes)})` : 'none'],
    ['In the pool since', clock(node.joined_ms)],
    ['Last heard of', clock(node.seen_ms)],
  ];
}

function showFigures(list, figures) {
  while (list.childElementCount > figures.length) list.lastElementChild.remove();
  figures.forEach(([name, value, isZero], place) => {
    let row = list.children[place];
    if (!row) { row = make('div', {}, make('dt'), make('dd')); list.append(row); }
    say(row.firstElementChild, name);
    say(row.lastElementChild, value);
    row.classList.toggle('zero', Boolean(isZero));
  });
}
