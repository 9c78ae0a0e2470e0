'use strict';
// Small helpers. Texts from the pool go into the page as text alone, never as HTML.

const $ = (id) => document.getElementById(id);

// An error of this script is said, not left to be guessed from figures that stand still.
let failures = 0;
addEventListener('error', (event) => {
  failures += 1;
  $('banner').hidden = false;
  $('banner').textContent = `This page has an error, and may show old figures: ${event.message}. Load it again.`;
});

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === 'onclick') node.addEventListener('click', value);
    else if (value !== undefined && value !== null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

// Writing what is there already would make the browser lay out the page again.
function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function mark(node, name, value) {
  const old = node.getAttribute(name);
  if (value === null || value === undefined || value === false) {
    if (old !== null) node.removeAttribute(name);
  } else if (old !== String(value)) node.setAttribute(name, value);
}

const wholes = new Intl.NumberFormat('en');
const names = new Intl.Collator('en', { numeric: true });
const byName = (a, b) => names.compare(a, b);

// A name as two parts. The second tells the nodes of a site apart, and is never cut.
function nameParts(name) {
  const last = name.search(/[-_.][^-_.]{1,6}$/);
  const cut = last > 0 ? last : Math.max(0, name.length - 4);
  return [name.slice(0, cut), name.slice(cut)];
}

function scaled(number, step, units) {
  let place = 0;
  while (number >= step && place < units.length - 1) { number /= step; place += 1; }
  const digits = place > 0 && number < 10 ? 1 : 0;
  return [number.toFixed(digits), units[place]];
}
function bytes(number) {
  const [digits, unit] = scaled(number, 1000, ['B', 'kB', 'MB', 'GB', 'TB', 'PB']);
  return `${digits} ${unit}`;
}
function count(number) {
  if (number < 100000) return wholes.format(Math.round(number));
  const [digits, unit] = scaled(number, 1000, ['', 'k', 'M', 'G', 'T']);
  return `${digits} ${unit}`;
}
function rate(number) {
  if (number === 0) return '0';
  return number < 10 ? number.toFixed(1) : count(number);
}
function percent(share) {
  return `${Math.round(100 * share)} %`;
}
function plural(number, one) {
  return `${wholes.format(number)} ${one}${number === 1 ? '' : 's'}`;
}
function duration(seconds) {
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds < 10 ? +seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
}
function clock(ms, withTenths) {
  const date = new Date(ms);
  const two = (number) => String(number).padStart(2, '0');
  const text = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return withTenths ? `${text}.${Math.floor(date.getMilliseconds() / 100)}` : text;
}

// What the person has chosen; a browser may forbid to keep it.
const choices = {
  get(name) { try { return localStorage.getItem(`satin-${name}`); } catch { return null; } },
  set(name, value) { try { localStorage.setItem(`satin-${name}`, value); } catch { /* Chosen for this visit alone. */ } },
};

// Colours for canvases: those of the style sheet.
const colours = {};
function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ['card', 'line', 'soft', 'text', 'muted', 'accent', 'bad', 'warn', 'run', 'run_stolen', 'steal_near', 'steal_far', 'wait', 'transfer', 'repair', 'idle']) {
    colours[name] = style.getPropertyValue(`--${name}`).trim();
  }
}

// A canvas of the size at which it is shown, in pixels of the screen.
function fit(canvas, width, height) {
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

// The name, with as much of its first part as there is room for.
function fitName(context, name, width) {
  if (context.measureText(name).width <= width) return name;
  let [head, tail] = nameParts(name);
  while (head && context.measureText(`${head}…${tail}`).width > width) head = head.slice(0, -1);
  return `${head}…${tail}`;
}

function showTip(text, x, y) {
  const tip = $('tip');
  say(tip, text);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 4))}px`;
  tip.style.top = `${y + height + 22 > innerHeight ? y - height - 10 : y + 16}px`;
}
function hideTip() { $('tip').hidden = true; }

function toast(text) {
  const node = $('toast');
  say(node, text);
  node.hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { node.hidden = true; }, 8000);
}
