// Virtual time: play, pause, steps, speed, and the scrubber with the marks of what happened.

import { act, now, nowOf, on } from "./feed.js";
import { clamp, h, keep, seconds, setAttr, setText, t } from "./parts.js";

const MARKS_MAX = 400;
const BACK_MS = 1000;
const SPEEDS = [1, 2, 5, 10, 30, 60, 120, 300, 600];
const find = (id) => document.getElementById(id);
const play = find("play"), speed = find("speed"), reached = find("reached"), scrubber = find("scrubber");
const at = find("at"), whole = find("whole"), busy = find("busy"), marksBox = find("marks");
let marks = [];
let dragging = false;

const wholeOf = (scene) => Math.max(1, nowOf(scene), ...scene.sides.map((side) => side.life_ms), ...marks.map((one) => one.at_ms));

export const to = (ms) => act({ act: "to", ms: Math.max(0, Math.round(ms)) });
export const toggle = () => act({ act: now()?.playing ? "pause" : "play" });
export const oneEvent = () => act({ act: "event" });
export const oneSecond = () => act({ act: "second" });
export const back = () => now() && to(nowOf(now()) - BACK_MS);

export function faster(step) {
  const at = SPEEDS.indexOf(Number(speed.value));
  speed.selectedIndex = clamp(at + step, 0, SPEEDS.length - 1);
  return act({ act: "speed", times: Number(speed.value) });
}

/** To the next moment at which something happened, or to the last one (step -1). */
export function toMark(step) {
  if (!now()) return;
  const here = nowOf(now()), times = marks.map((one) => one.at_ms).sort((a, b) => a - b);
  const next = step > 0 ? times.find((ms) => ms > here + 50) : times.findLast((ms) => ms < here - 50);
  if (next !== undefined) to(next);
}

play.addEventListener("click", toggle);
find("event").addEventListener("click", oneEvent);
find("second").addEventListener("click", oneSecond);
find("restart").addEventListener("click", () => act({ act: "restart" }));
find("finish").addEventListener("click", () => act({ act: "finish" }));
for (const times of SPEEDS) speed.append(h("option", { value: times, text: `${times}\u00d7` }));
speed.addEventListener("change", () => act({ act: "speed", times: Number(speed.value) }));
scrubber.addEventListener("input", () => {
  dragging = true;
  setText(at, seconds(Number(scrubber.value)));
});
scrubber.addEventListener("change", () => {
  dragging = false;
  to(Number(scrubber.value));
});

on("told", (added) => {
  marks = marks.concat(added.marks, added.wrongs.map((one) => ({ ...one, kind: "wrong" }))).slice(-MARKS_MAX);
});
on("forgotten", () => { marks = []; });

/** What the run is busy with; each `what` has the fields that its text names. */
function busyText({ what, at_ms = 0, to_ms = 0, share }) {
  return t(`busy.${what}`, { at: seconds(at_ms), to: seconds(to_ms), share });
}

function drawMarks(length) {
  const look = `${marks.length}|${length}|${marks.at(-1)?.at_ms}`;
  if (marksBox.look === look) return;
  marksBox.look = look;
  keep(marksBox, marks, (one, number) => `${one.mode}${one.kind}${one.at_ms}${number}`,
    (one) => h("i", { class: `mark ${one.kind}`, title: `${seconds(one.at_ms)}: ${one.text}` }),
    (node, one) => { node.style.left = `${((100 * one.at_ms) / length).toFixed(2)}%`; });
}
marksBox.addEventListener("click", (event) => {
  const share = (event.clientX - marksBox.getBoundingClientRect().left) / marksBox.clientWidth;
  if (!now()) return;
  const length = wholeOf(now()), near = length * (6 / marksBox.clientWidth);
  const hit = marks.find((one) => Math.abs(one.at_ms - share * length) < near);
  to(hit ? hit.at_ms : share * length);
});

on("scene", (scene) => {
  const here = nowOf(scene), length = wholeOf(scene);
  play.dataset.playing = scene.playing;
  setAttr(play, "aria-label", t(scene.playing ? "time.pause" : "time.play"));
  setText(play.firstElementChild, scene.playing ? "\u275a\u275a" : "\u25b6");
  setAttr(scrubber, "max", length);
  if (!dragging) {
    scrubber.value = here;
    setText(at, seconds(here));
  }
  setAttr(scrubber, "aria-valuetext", t("time.of", { now: seconds(here), whole: seconds(length) }));
  setText(whole, seconds(length));
  if (document.activeElement !== speed && Number(speed.value) !== scene.speed) speed.value = scene.speed;
  const slow = scene.playing && scene.reached < 0.9 * scene.speed;
  setText(reached, slow ? t("time.reached", { times: scene.reached.toFixed(scene.reached < 10 ? 1 : 0) }) : "");
  setText(busy, scene.busy ? busyText(scene.busy) : "");
  document.body.classList.toggle("is-busy", Boolean(scene.busy));
  drawMarks(length);
});
