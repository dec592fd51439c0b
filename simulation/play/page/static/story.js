// The story beside the picture, newest first, and the judge: violations with their rule and records.

import { follow, on, setFollow } from "./feed.js";
import { docsLink, h, keep, seconds, setAttr, setText, t, tOr } from "./parts.js";
import { to } from "./time.js";

const SHOWN_MAX = 200, KEPT_MAX = 2000, CALLS = "calls";
const PLAYING_MAX = 60, EVERY_MS = 400; // while time runs nobody reads more, and each change makes the browser lay out
const list = document.getElementById("story"), focusChoice = document.getElementById("focus"), judge = document.getElementById("judge");
const wrongList = document.getElementById("wrongs"), told = document.getElementById("told"), legend = document.getElementById("keys");
const following = document.getElementById("following");
let sentences = [];
let wrongs = [];
let foci = new Set();
let number = 0;
let stale = true;
let drawnAt = 0;
let modes = 1;

on("forgotten", () => {
  sentences = [];
  wrongs = [];
  stale = true;
});
on("told", (added, scene) => {
  modes = scene.sides.length;
  const fresh = added.story.map((one) => ({ ...one, id: (number += 1) })).reverse();
  // Single messages are many: they are kept apart, so that they do not push out what else happens.
  const all = [...fresh, ...sentences].sort((a, b) => b.at_ms - a.at_ms || b.id - a.id);
  let calls = 0, others = 0;
  sentences = all.filter((one) => (one.focus === CALLS ? (calls += 1) : (others += 1)) <= KEPT_MAX);
  for (const one of fresh) if (one.focus && !foci.has(one.focus)) addFocus(one.focus);
  if (added.wrongs.length) {
    wrongs = [...added.wrongs.map((one) => ({ ...one, id: (number += 1) })).reverse(), ...wrongs].slice(0, SHOWN_MAX);
    setText(told, t("wrong.told", { at: seconds(added.wrongs[0].at_ms), text: added.wrongs[0].text }));
  }
  stale = true;
});
on("followed", () => { stale = true; });
focusChoice.addEventListener("change", () => { stale = true; drawStory(); });

function addFocus(focus) {
  foci.add(focus);
  focusChoice.append(h("option", { value: focus, text: tOr(`focus.${focus}`, focus) }));
}

function isShown(one) {
  const followed = follow();
  if (focusChoice.value && one.focus !== focusChoice.value) return false;
  if (one.focus === CALLS && !followed && focusChoice.value !== CALLS) return false;
  if (followed?.queue) return !one.queues.length || one.queues.includes(followed.queue);
  if (followed?.key !== undefined) return one.key === followed.key || (one.key === null && !one.queues.length);
  return true;
}

function makeSentence(one) {
  const time = h("button", { class: "plain time", type: "button", text: seconds(one.at_ms), title: t("story.jump"), click: () => to(one.at_ms) });
  const node = h("li", { class: `focus-${one.focus}` }, time);
  if (modes > 1) node.append(h("span", { class: "mode-chip", text: t(`mode.short.${one.mode}`) }));
  node.append(sentence(one));
  return node;
}

/** What a host did; most sentences begin with its name. */
function sentence({ host, text }) {
  const rest = text.startsWith(`${host} `) || text.startsWith(`${host}'`) ? text.slice(host.length) : ` ${text}`;
  return h("span", { class: "what" }, h("b", { text: host }), rest);
}

function drawStory(isPlaying = false) {
  if (!stale || (isPlaying && performance.now() < drawnAt + EVERY_MS)) return;
  stale = isPlaying && sentences.length > PLAYING_MAX; // the rest follows when it stops
  drawnAt = performance.now();
  const most = isPlaying ? PLAYING_MAX : SHOWN_MAX, shown = [];
  for (const one of sentences) {
    if (isShown(one)) shown.push(one);
    if (shown.length === most) break;
  }
  keep(list, shown, (one) => one.id, makeSentence);
  document.getElementById("no-story").hidden = shown.length > 0;
}

function makeWrong(one) {
  const records = h("ul", {}, ...one.records.map((record) =>
    h("li", {}, h("span", { class: "time", text: seconds(record.at_ms) }), sentence(record))));
  const jump = h("button", { type: "button", class: "small", text: t("wrong.jump"), click: () => to(one.at_ms) });
  return h("li", { class: "wrong" },
    h("b", { text: `\u2717 ${tOr(`kind.${one.kind}`, one.kind)} ${t("wrong.at", { at: seconds(one.at_ms), queue: one.queue })}` }),
    modes > 1 ? h("span", { class: "mode-chip", text: t(`mode.short.${one.mode}`) }) : "",
    h("p", { text: one.text }), records, h("p", { class: "links" }, jump, one.rule ? docsLink(one.rule) : ""));
}

function drawJudge(scene) {
  keep(judge, scene.sides, (one) => one.mode, () => h("p", {}), (node, side) => {
    const count = wrongs.filter((one) => one.mode === side.mode).length;
    const mode = scene.sides.length > 1 ? t("mode.before", { mode: t(`mode.short.${side.mode}`) }) : "";
    setText(node, mode + (count ? t("verdict.count", { count }) : t("verdict.so_far", { until: seconds(side.judged_ms ?? 0) })));
    setAttr(node, "class", count ? "bad" : "good");
  });
  keep(wrongList, wrongs, (one) => one.id, makeWrong);
}

function drawLegend(scene) {
  const names = (scene.sides[0]?.key_names ?? []).slice(0, 64), followed = follow();
  keep(legend, names.map((name, key) => ({ name, key })), (one) => one.key + one.name, ({ name, key }) =>
    h("button", { type: "button", class: `key k${key % 8}`, "data-explain": "key", title: name, click: () => setFollow(follow()?.key === key ? null : { key }) },
      h("span", { class: "key-number", text: String(key) }), name === String(key) || name === `key${key}` ? "" : name),
  (node, { key, name }) => {
    setAttr(node, "aria-pressed", String(followed?.key === key));
    setAttr(node, "aria-label", t("follow.key", { key: name }));
  });
  const what = followed?.queue ?? scene.sides[0]?.key_names?.[followed?.key];
  following.hidden = !followed;
  if (followed) setText(following.firstElementChild, t(followed.queue ? "follow.queue_now" : "follow.key_now", { what }));
}
following.lastElementChild.addEventListener("click", () => setFollow(null));

on("scene", (scene) => {
  modes = scene.sides.length;
  drawStory(scene.playing);
  drawJudge(scene);
  drawLegend(scene);
});
