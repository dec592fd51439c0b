// Rows of messages on a canvas: tiles with the key's number, offsets, what is cached and running, deliveries as rings.

import { askFrame } from "./feed.js";

const CELL = 22, TILE = 18, TOP = 9;
export const ROW_HEIGHT = TOP + TILE + 6;
const COLOURS = 8;
let paint = null;

function readPaint() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  paint = { text: read("--text"), quiet: read("--quiet"), line: read("--line"), back: read("--back"), bad: read("--bad"),
    keys: Array.from({ length: COLOURS }, (_, n) => read(`--o${n}`)), on: Array.from({ length: COLOURS }, (_, n) => read(`--t${n}`)) };
}
let scheme = 0; // grows with each change of the colours, so that all rows are drawn again
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { paint = null; scheme += 1; askFrame(); });

function canvasOf(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    canvas.getContext("2d").fontSet = "";
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  return pen;
}

const colourOf = (number) => paint.keys[number % COLOURS];

function tile(pen, x, y, size, key, look) {
  const colour = key === null ? paint.quiet : colourOf(key);
  pen.globalAlpha = look.faded ? 0.15 : 1;
  pen.beginPath();
  if (look.round) pen.arc(x + size / 2, y + size / 2, size / 2 - 2.5, 0, 2 * Math.PI);
  else pen.roundRect(x + 0.5, y + 0.5, size - 1, size - 1, 4);
  if (look.running) {
    pen.fillStyle = colour;
    pen.fill();
  } else if (!look.done) {
    const alpha = pen.globalAlpha;
    pen.fillStyle = colour;
    pen.globalAlpha = alpha * 0.3;
    pen.fill();
    pen.globalAlpha = alpha;
  }
  pen.lineWidth = look.running ? 2 : look.done ? 1 : 1.5;
  pen.strokeStyle = look.running ? paint.text : look.done ? paint.line : colour;
  pen.stroke();
  pen.fillStyle = look.running && key !== null ? paint.on[key % COLOURS] : look.done ? paint.quiet : paint.text;
  const font = `${look.running ? 700 : 500} ${size > 15 ? 11 : 10}px system-ui, sans-serif`;
  if (pen.fontSet !== font) pen.font = pen.fontSet = font; // to set a font costs more than to draw with it
  pen.fillText(key === null ? "\u00b7" : String(key), x + size / 2, y + size / 2 + 0.5);
  pen.globalAlpha = 1;
}

function ring(pen, x, y, share, colour) {
  pen.lineWidth = 2.5;
  pen.strokeStyle = paint.line;
  pen.beginPath();
  pen.arc(x, y, TILE / 2 + 0.5, 0, 2 * Math.PI);
  pen.stroke();
  pen.strokeStyle = colour;
  pen.beginPath();
  pen.arc(x, y, TILE / 2 + 0.5, -Math.PI / 2, -Math.PI / 2 + 2 * Math.PI * share);
  pen.stroke();
}

/** How many tiles have room. */
export const tilesIn = (width) => Math.max(3, Math.min(24, Math.floor((width - 4) / CELL)));

/**
 * The row of a queue. `row`: {first, keys, committed, max, running: Map offset -> owner numbers, cachedTo, cachedFrom,
 * cachedBy, deliveries: Map offset -> {share, owner}, fadedBut: key or null, faded}.
 */
export function drawQueue(canvas, row, width) {
  const room = tilesIn(width), after = row.max - row.first; // messages from the first one shown
  const count = Math.min(after > room ? room - 2 : room, row.keys.length); // the last places say how many there are more
  const marks = [...row.running].map(([offset, owners]) => `${offset}:${owners}`);
  const deliveries = [...row.deliveries].map(([offset, one]) => `${offset}:${one.owner}:${one.share.toFixed(2)}`);
  const look = [scheme, width, row.first, row.keys.slice(0, count), row.committed, row.max, marks, row.cachedFrom, row.cachedTo,
    row.cachedBy, deliveries, row.fadedBut, row.faded].join("|");
  if (canvas.look === look) return;
  canvas.look = look;
  if (!paint) readPaint();
  const pen = canvasOf(canvas, width, ROW_HEIGHT);
  for (let place = 0; place < count; place++) {
    const offset = row.first + place, key = row.keys[place], x = 3 + place * CELL;
    const runningBy = row.running.get(offset), delivery = row.deliveries.get(offset);
    const faded = row.faded || (row.fadedBut !== null && row.fadedBut !== key);
    const cached = row.cachedBy !== null && offset >= row.cachedFrom && offset <= row.cachedTo;
    tile(pen, x, TOP, TILE, key, { done: offset < row.committed, running: Boolean(runningBy), faded, round: Boolean(delivery) });
    pen.globalAlpha = faded ? 0.15 : 1;
    if (cached) {
      pen.fillStyle = colourOf(row.cachedBy);
      pen.fillRect(x, TOP + TILE + 2, CELL - (offset < row.cachedTo && place < count - 1 ? 0 : CELL - TILE), 3);
    }
    if (delivery) ring(pen, x + TILE / 2, TOP + TILE / 2, delivery.share, colourOf(delivery.owner));
    if (runningBy) runningBy.forEach((owner, number) => arrow(pen, x + TILE / 2 + (number - (runningBy.length - 1) / 2) * 9, colourOf(owner)));
    pen.globalAlpha = 1;
  }
  flag(pen, row, count);
  if (after > count) {
    pen.fillStyle = paint.quiet;
    pen.font = pen.fontSet = "11px system-ui, sans-serif";
    pen.textAlign = "left";
    pen.fillText(`+${after - count}`, 4 + count * CELL, TOP + TILE / 2 + 0.5);
  }
}

function arrow(pen, x, colour) {
  pen.fillStyle = colour;
  pen.strokeStyle = paint.text;
  pen.lineWidth = 1;
  pen.beginPath();
  pen.moveTo(x - 4.5, 1);
  pen.lineTo(x + 4.5, 1);
  pen.lineTo(x, 7.5);
  pen.closePath();
  pen.fill();
  pen.stroke();
}

/** The committed offset: a line before the first message that is not handled for certain. */
function flag(pen, row, count) {
  const place = row.committed - row.first;
  if (place < 0 || place > count) return;
  const x = 1 + place * CELL;
  pen.fillStyle = paint.text;
  pen.globalAlpha = row.faded ? 0.15 : 1;
  pen.fillRect(x - 0.75, 2, 2, ROW_HEIGHT - 3);
  pen.globalAlpha = 1;
}

/** Small tiles of what a member has cached. `tiles`: [{key, running, faded}]. */
export function drawCache(canvas, tiles, more) {
  const look = [scheme, more, ...tiles.map((one) => `${one.key}${one.running ? "r" : ""}${one.faded ? "f" : ""}`)].join("|");
  if (canvas.look === look) return;
  canvas.look = look;
  if (!paint) readPaint();
  const pen = canvasOf(canvas, Math.max(1, tiles.length * 17 + (more ? 34 : 0)), 17);
  tiles.forEach((one, place) => tile(pen, place * 17 + 1, 1, 15, one.key, one));
  if (more) {
    pen.fillStyle = paint.quiet;
    pen.font = pen.fontSet = "11px system-ui, sans-serif";
    pen.textAlign = "left";
    pen.fillText(`+${more}`, tiles.length * 17 + 2, 9);
  }
}
