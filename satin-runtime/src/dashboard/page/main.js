// The begin: the theme, the connection, and the loop that draws.

const THEMES = ['system', 'light', 'dark'];
const systemIsDark = matchMedia('(prefers-color-scheme: dark)');

function showTheme() {
  const chosen = THEMES.includes(choices.get('theme')) ? choices.get('theme') : 'system';
  const isDark = chosen === 'dark' || (chosen === 'system' && systemIsDark.matches);
  document.documentElement.dataset.theme = isDark ? 'dark' : 'light';
  say($('theme'), `◐ ${chosen}`);
  mark($('theme'), 'aria-label', `Theme: ${chosen}`);
  readColours();
  stream.isDirty = true;
  if (pool.picture) showCurves();
}

function startTheme() {
  $('theme').addEventListener('click', () => {
    const place = THEMES.indexOf(choices.get('theme') ?? 'system');
    choices.set('theme', THEMES[(place + 1) % THEMES.length]);
    showTheme();
  });
  systemIsDark.addEventListener('change', showTheme);
  showTheme();
}

function showLink(kind, text, banner) {
  mark($('link'), 'data-kind', kind);
  say($('link-text'), text);
  $('banner').hidden = !banner;
  if (banner) say($('banner'), banner);
  $('main').classList.toggle('stale', kind === 'lost');
}

function showFrame() {
  say($('pool-name'), pool.picture.pool);
  showTiles();
  showMap();
  showReasons();
  showStream();
  showCurves();
  showMatrix();
  showKept();
  showNodes();
  showNewEvents();
}

// The time without any sign of the node after which the connection counts as lost, in milliseconds. Too short: false alarms. Too long: people look at old figures.
const LOST_AFTER = 6000;
const connection = { source: null, sign: 0, hasHeard: false, isAnew: true };

function connect() {
  const source = new EventSource('api/live');
  connection.source = source;
  connection.sign = performance.now();
  source.addEventListener('open', () => { connection.isAnew = true; });
  source.addEventListener('frame', (event) => receive(event, false));
  source.addEventListener('end', (event) => receive(event, true));
  source.addEventListener('beat', () => { connection.sign = performance.now(); watchLink(); });
  source.addEventListener('error', () => {
    // The browser tries again by itself, unless it was refused.
    if (source.readyState === EventSource.CLOSED) setTimeout(() => { if (connection.source === source) connect(); }, 3000);
    watchLink(true);
  });
}

function receive(event, isEnd) {
  connection.sign = performance.now();
  connection.hasHeard = true;
  const frame = JSON.parse(event.data);
  if (frame.picture) {
    if (connection.isAnew) { forget(); connection.isAnew = false; $('log').replaceChildren(); stream.shape = ''; }
    take(frame);
  }
  if (isEnd) {
    pool.isOver = true;
    connection.source.close();
    connection.source = null;
  }
  if (pool.picture) showFrame();
  watchLink();
}

function watchLink(isBroken = false) {
  if (pool.isFrozen) return;
  if (pool.isOver) return showLink('over', 'ended', 'The node that serves this page has ended: this is its last state.');
  const silence = performance.now() - connection.sign;
  if (isBroken || silence > LOST_AFTER) {
    const since = pool.picture ? ` What you see is from ${clock(pool.picture.now_ms)}.` : '';
    return showLink('lost', 'connection lost', `The connection to the pool is lost; trying again.${since}`);
  }
  if (!connection.hasHeard || connection.source?.readyState !== EventSource.OPEN) return;
  const stale = performance.now() - pool.heard;
  if (stale > LOST_AFTER) return showLink('wait', 'no news', `Nothing has been heard of the pool for ${duration(Math.round(stale / 1000))}.`);
  showLink('live', 'live');
}

function draw(time) {
  drawStream(time);
  requestAnimationFrame(draw);
}

function showFrozen(frame) {
  pool.isFrozen = true;
  take(frame);
  curves.isAll = true;
  const last = pool.picture.now_ms - pool.base;
  if (last > pool.first) stream.span = last - pool.first;
  $('stream-pause').hidden = true;
  showLink('over', `report of ${new Date(pool.picture.now_ms).toLocaleString('en-GB')}`);
  showAllTime(true);
  showFrame();
  showControls();
}

startTheme();
startStream();
startCurves();
startTables();
startSteering();
const frozen = $('frozen').textContent.trim();
if (frozen) showFrozen(JSON.parse(frozen));
else {
  connect();
  setInterval(watchLink, 1000);
}
requestAnimationFrame(draw);
