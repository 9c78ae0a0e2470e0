// The rates of the whole pool over time.

const RECENT_MS = 300000;
// The room for the labels of an axis, in pixels.
const LEFT = 58;
const curves = { isAll: false, hover: null };

// The bins in sight; the newest are not complete yet.
function binsInSight() {
  const { step_ms, bins } = pool.series;
  const to = pool.isFrozen || pool.isOver ? bins.length : Math.max(0, bins.length - Math.ceil(2500 / step_ms));
  const from = curves.isAll ? 0 : Math.max(0, to - Math.ceil(RECENT_MS / step_ms));
  return { from, list: bins.slice(from, to) };
}

function showCurves() {
  const sight = binsInSight();
  const seconds = pool.series.step_ms / 1000;
  drawCurve($('curve-jobs'), sight, (bin) => bin[0] / seconds, rate, colours.run, $('curve-jobs-now'), 'Jobs between nodes per second');
  drawCurve($('curve-bytes'), sight, (bin) => bin[1] / seconds, (value) => `${bytes(value)}/s`, colours.transfer, $('curve-bytes-now'), 'Bytes between nodes per second');
  drawAreas($('curve-busy'), sight);
}

function frameOf(canvas) {
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const context = fit(canvas, width, height);
  context.clearRect(0, 0, width, height);
  return { context, x0: LEFT, y0: 8, w: width - LEFT - 2, h: height - 30 };
}

function niceTop(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].find((step) => step * power >= value) * power;
}

function drawGrid(frame, sight, top, format) {
  const { context, x0, y0, w, h } = frame;
  context.font = '11px system-ui, sans-serif';
  context.strokeStyle = colours.soft;
  context.fillStyle = colours.muted;
  for (const part of [0, 0.5, 1]) {
    const y = Math.round(y0 + h * (1 - part)) + 0.5;
    context.beginPath();
    context.moveTo(x0, y);
    context.lineTo(x0 + w, y);
    context.stroke();
  }
  return () => {
    context.fillStyle = colours.muted;
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    for (const part of [0, 0.5, 1]) context.fillText(part ? format(top * part) : '0', x0 - 6, y0 + h * (1 - part));
    const { start_ms, step_ms } = pool.series;
    context.textBaseline = 'alphabetic';
    context.textAlign = 'left';
    if (sight.list.length > 1) {
      context.fillText(clock(start_ms + sight.from * step_ms), x0, y0 + h + 16);
      context.textAlign = 'right';
      context.fillText(clock(start_ms + (sight.from + sight.list.length) * step_ms), x0 + w, y0 + h + 16);
    }
  };
}

function placeOf(canvas, sight) {
  if (!curves.hover || curves.hover.canvas !== canvas || sight.list.length === 0) return sight.list.length - 1;
  return Math.max(0, Math.min(sight.list.length - 1, Math.round(curves.hover.part * (sight.list.length - 1))));
}

function timeOf(sight, place) {
  return clock(pool.series.start_ms + (sight.from + place) * pool.series.step_ms);
}

function drawHair(frame, canvas, sight) {
  if (curves.hover?.canvas !== canvas || sight.list.length < 2) return;
  const x = frame.x0 + (placeOf(canvas, sight) / (sight.list.length - 1)) * frame.w;
  frame.context.strokeStyle = colours.muted;
  frame.context.beginPath();
  frame.context.moveTo(x, frame.y0);
  frame.context.lineTo(x, frame.y0 + frame.h);
  frame.context.stroke();
}

function tell(canvas, node, sight, words, title) {
  const place = placeOf(canvas, sight);
  const text = place < 0 ? 'no figures yet' : words(place);
  const isHovered = curves.hover?.canvas === canvas && place >= 0;
  say(node, isHovered ? `${timeOf(sight, place)}: ${text}` : text);
  mark(canvas, 'aria-label', `${title}, now ${text}`);
}

function drawCurve(canvas, sight, read, format, colour, now, title) {
  const frame = frameOf(canvas);
  const values = sight.list.map(read);
  const top = niceTop(Math.max(0, ...values));
  const labels = drawGrid(frame, sight, top, format);
  const { context, x0, y0, w, h } = frame;
  if (values.length > 1) {
    const x = (place) => x0 + (place / (values.length - 1)) * w;
    const y = (value) => y0 + h * (1 - value / top);
    context.beginPath();
    values.forEach((value, place) => context.lineTo(x(place), y(value)));
    context.strokeStyle = colour;
    context.lineWidth = 1.8;
    context.lineJoin = 'round';
    context.stroke();
    context.lineWidth = 1;
    context.lineTo(x0 + w, y0 + h);
    context.lineTo(x0, y0 + h);
    context.globalAlpha = 0.13;
    context.fillStyle = colour;
    context.fill();
    context.globalAlpha = 1;
  }
  drawHair(frame, canvas, sight);
  labels();
  tell(canvas, now, sight, (place) => format(values[place]), title);
}

// What is useful is at the bottom, idleness on top.
const STACK = ['run', 'run_stolen', 'repair', 'transfer', 'wait', 'steal_near', 'steal_far', 'idle'];

function drawAreas(canvas, sight) {
  const frame = frameOf(canvas);
  const kinds = STACK.map((name) => pool.activities.indexOf(name)).filter((kind) => kind >= 0);
  const shares = sight.list.map((bin) => {
    const all = kinds.reduce((sum, kind) => sum + bin[kind + 2], 0);
    return kinds.map((kind) => (all > 0 ? bin[kind + 2] / all : 0));
  });
  const labels = drawGrid(frame, sight, 1, percent);
  const { context, x0, y0, w, h } = frame;
  if (shares.length > 1) {
    const x = (place) => x0 + (place / (shares.length - 1)) * w;
    let below = shares.map(() => 0);
    kinds.forEach((kind, level) => {
      const above = below.map((sum, place) => sum + shares[place][level]);
      context.beginPath();
      above.forEach((sum, place) => context.lineTo(x(place), y0 + h * (1 - sum)));
      for (let place = below.length - 1; place >= 0; place -= 1) context.lineTo(x(place), y0 + h * (1 - below[place]));
      context.fillStyle = colours[pool.activities[kind]];
      context.fill();
      below = above;
    });
  }
  drawHair(frame, canvas, sight);
  labels();
  const busy = (place) => kinds.reduce((sum, kind, level) => sum + (BUSY.has(pool.activities[kind]) ? shares[place][level] : 0), 0);
  tell(canvas, $('curve-busy-now'), sight, (place) => `${percent(busy(place))} run jobs`, 'Workers by activity');
}

function showAllTime(isAll) {
  curves.isAll = isAll;
  mark($('curves-all'), 'aria-pressed', isAll);
  mark($('curves-recent'), 'aria-pressed', !isAll);
  if (pool.picture) showCurves();
}

function startCurves() {
  $('curves-all').addEventListener('click', () => showAllTime(true));
  $('curves-recent').addEventListener('click', () => showAllTime(false));
  for (const canvas of document.querySelectorAll('figure canvas')) {
    canvas.addEventListener('pointermove', (event) => {
      const box = canvas.getBoundingClientRect();
      curves.hover = { canvas, part: (event.clientX - box.left - LEFT) / (box.width - LEFT) };
      if (pool.picture) showCurves();
    });
    canvas.addEventListener('pointerleave', () => { curves.hover = null; if (pool.picture) showCurves(); });
  }
  new ResizeObserver(() => { if (pool.picture) showCurves(); }).observe($('rates'));
}
