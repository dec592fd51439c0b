// Lessons: what to watch, a question, a touch that shows the answer, and why. Progress stays in this browser.

import { act, now, nowOf, on } from "./feed.js";
import { articleLink, h, setText } from "./parts.js";

const STORED = "lockstep-lessons";
const SEEN_MS = 8000; // of the reader: so long plays what a lesson shows
const NEAR_MS = 250; // of the reader: the run is shown so late at most
const SPEEDS = [1, 2, 5, 10, 30, 60];
const box = document.getElementById("lessons"), beside = box.parentElement, after = box.nextElementSibling;
const picture = document.querySelector(".picture");
const summary = h("summary"), body = h("div", { class: "lesson", "aria-live": "polite" });
const panel = h("details", {}, summary, body);
let words = {};
let lessons = [];
let lesson = null; // the present one
let step = ""; // of it: watch, ask, touch, show, answer
let chosen = -1;
let byItself = false; // the reader let the touches be made
let title = ""; // of the run that it opened
let made = 0; // touches by this panel
let times = []; // when each touch came, in ms of the run
let waits = 0; // for so many acts of this panel
let before; // the run that was there before

const say = (key, fields = {}) => words[key].replace(/\{(\w+)\}/g, (whole, name) => fields[name] ?? whole);
const button = (key, does, attrs = {}) => h("button", { type: "button", text: words[key], click: does, ...attrs });

// Progress ----------------------------------------------------------------------------------------------------

function done() {
  try { return new Set(JSON.parse(localStorage.getItem(STORED) ?? "[]")); } catch { return new Set(); }
}
function keepDone(key) {
  try { localStorage.setItem(STORED, JSON.stringify([...done().add(key)])); } catch { /* a browser that keeps nothing */ }
}

// What is shown -----------------------------------------------------------------------------------------------

function draw() {
  const had = body.contains(document.activeElement);
  const finished = done();
  setText(summary, say("count", { done: lessons.filter((one) => finished.has(one.key)).length, count: lessons.length }));
  body.replaceChildren(...(lesson ? ofLesson() : [list(finished)]));
  // A lesson stands above its picture, so that both are seen, also of two sides and on a narrow screen.
  if (lesson && box.parentElement !== picture) picture.prepend(box);
  if (!lesson && box.parentElement !== beside) beside.insertBefore(box, after);
  if (had) (body.querySelector("[data-first]") ?? body.querySelector("h3, button"))?.focus();
}

function list(finished) {
  return h("ol", { class: "lesson-list" }, ...lessons.map((one) => {
    const choice = h("button", { type: "button", class: "plain", text: one.title, click: () => begin(one) });
    return h("li", {}, choice, finished.has(one.key) ? h("span", { class: "done", text: ` \u2713 ${words.done}` }) : "");
  }));
}

function ofLesson() {
  const head = h("p", { class: "quiet small" }, say("place", { number: lessons.indexOf(lesson) + 1, count: lessons.length }), " \u00b7 ");
  if (lesson.section) head.append(articleLink(lesson.section), " \u00b7 ");
  head.append(button("list", leave, { class: "plain" }));
  return [head, h("h3", { text: lesson.title, tabindex: -1 }), ...STEPS[step]()];
}

const part = (key, text) => h("p", {}, h("b", { text: words[key] }), text);

const STEPS = {
  watch: () => [part("watch", lesson.watch), button("skip", toQuestion, { "data-first": true })],
  ask: () => [
    part("watch", lesson.watch),
    h("p", { class: "question" }, h("b", { text: lesson.question })),
    h("div", { class: "choices", role: "group", "aria-label": words.question },
      ...lesson.choices.map((text, number) => h("button", { type: "button", text, click: () => choose(number), "data-first": number === 0 }))),
  ],
  touch: () => [
    h("p", { class: "question" }, h("b", { text: lesson.question }), ` \u2014 ${lesson.choices[chosen]}`),
    part("touch", lesson.do),
    button("show", show, { "data-first": true }),
  ],
  show: () => [
    h("p", { class: "question" }, h("b", { text: lesson.question }), ` \u2014 ${lesson.choices[chosen]}`),
    h("p", { text: words.showing }),
  ],
  answer: () => [
    h("p", { class: "question" }, h("b", { text: lesson.question })),
    h("p", { class: chosen === lesson.right ? "right" : "wrong-choice" }, verdict()),
    h("p", { class: "why", text: lesson.answer }),
    ...(lesson.seen ? [] : [h("p", { class: "missing", text: words.missing })]),
    h("p", { class: "choices" }, next(), button("again", () => begin(lesson))),
  ],
};

function verdict() {
  const choice = lesson.choices[lesson.right];
  return chosen === lesson.right ? `\u2713 ${say("right", { choice })}` : `\u2717 ${say("wrong", { choice, chosen: lesson.choices[chosen] })}`;
}

function next() {
  const following = lessons[lessons.indexOf(lesson) + 1];
  return following ? button("next", () => begin(following), { "data-first": true }) : button("list", leave, { "data-first": true });
}

function go(to) {
  step = to;
  draw();
}

// The way through a lesson ------------------------------------------------------------------------------------

/** Ask for acts at once, so that none that the reader asks for comes between them; then look at where the run is. */
async function doing(...acts) {
  waits++;
  const done = await Promise.all(acts.map(act));
  waits--;
  look();
  return done.every(Boolean);
}

/** Play so that the reader sees `ms` of the run in some seconds. */
const play = (ms) => doing({ act: "speed", times: SPEEDS.find((one) => one * SEEN_MS >= ms) ?? SPEEDS.at(-1) }, { act: "play" });
const pause = () => doing({ act: "pause" });
const toQuestion = () => doing({ act: "to", ms: lesson.watch_ms });

async function begin(which) {
  lesson = null;
  before = now()?.run;
  if (!await doing(which.open)) return draw();
  [lesson, chosen, byItself, title, times, made] = [which, -1, false, "", [], 0];
  go("watch");
  await play(which.watch_ms);
}

function leave() {
  lesson = null;
  draw();
}

function choose(number) {
  chosen = number;
  if (lesson.touches.length) return go("touch");
  go("show");
  play(lesson.show_ms);
}

async function show() {
  if (made > times.length) return; // it has not come yet: a double click asks for one touch
  made = times.length + 1;
  byItself = await doing({ act: "touch", line: lesson.touches[made - 1].line });
  if (!byItself) made = times.length;
}

function goOn() {
  go("show");
  play((lesson.touches.at(-1)?.after_ms ?? 0) + lesson.show_ms);
}

async function answer() {
  const of = lesson;
  step = "asking";
  await pause();
  of.seen = (await (await fetch(`/lessons/${of.key}`)).json()).shown;
  if (of.seen) keepDone(of.key);
  if (lesson === of && step === "asking") go("answer"); // not if it was begun anew meanwhile
}

/** What the run has come to: the moment of the question, a touch, the moment of the next touch, the end. */
function follow(scene) {
  const here = nowOf(scene);
  if (step === "watch") {
    const isNear = here >= lesson.watch_ms - NEAR_MS * scene.speed; // what is played on would be past it
    if (here > lesson.watch_ms + 100 || (scene.playing && isNear)) toQuestion();
    else if (here >= lesson.watch_ms) go("ask");
    return;
  }
  if (step !== "touch" && step !== "show") return;
  if (scene.touches.length < times.length) { // one was undone
    made = times.length = scene.touches.length;
    if (made < lesson.touches.length) go("touch");
  }
  const came = times.length;
  while (times.length < scene.touches.length) times.push(here);
  if (times.length > came) return goOn(); // an act lets the run stand
  const following = lesson.touches[came];
  if (!following) {
    if (step === "show" && here >= (times.at(-1) ?? lesson.watch_ms) + lesson.show_ms) answer();
  } else if (came && step === "show" && here >= times[0] + following.after_ms) {
    if (byItself) return show();
    pause();
    go("touch");
  }
}

function look() {
  const scene = now();
  if (!lesson || waits || !scene || scene.busy || scene.run === before) return;
  title ||= scene.title;
  if (title !== scene.title) return leave(); // the reader has opened another run
  follow(scene);
}
on("scene", look);

async function load() {
  const answered = await fetch("/lessons"); // in the language of the page
  if (!answered.ok) return;
  ({ words, lessons } = await answered.json());
  box.replaceChildren(panel);
  box.hidden = false;
  draw();
}
load();
