// What the run says, and what the user asks of it. Other parts of the page, lessons too, listen here.
//
//   on("scene", (scene) => ...)       once a frame, with the newest scene
//   on("told", (added, scene) => ...) new sentences, marks and violations of all sides
//   on("forgotten", () => ...)        the run is another one, or was played anew: its story begins again
//   on("refused", (sentence) => ...)  an act was refused
//   on("cut", (isCut) => ...)         the connection to `lockstep-sim play`
//   on("followed", (follow) => ...)   {key: number}, {queue: id} or null
//   act({act: "pause"})               resolves to true if it was done

import { token } from "./parts.js";

const listeners = new Map();
let scene = null;
let run = null;
let asked = false;
let followed = null;

export function on(event, listener) {
  if (!listeners.has(event)) listeners.set(event, []);
  listeners.get(event).push(listener);
}

export function emit(event, ...values) {
  for (const listener of listeners.get(event) ?? []) listener(...values);
}

export const now = () => scene;
export const nowOf = (scene) => Math.max(0, ...scene.sides.map((side) => side.now_ms)); // of the run, in ms
export const follow = () => followed;

export function setFollow(what) {
  followed = what;
  emit("followed", followed);
  askFrame();
}

let last = Promise.resolve();

/** Acts leave in the order in which they were asked for: the next one when the last one is answered. */
export function act(what) {
  return last = last.then(() => send(what));
}

async function send(what) {
  try {
    const answer = await fetch("/do", {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Token": token },
      body: JSON.stringify(what),
    });
    if (answer.ok) return true;
    const said = await answer.text();
    let sentence = said;
    try { sentence = JSON.parse(said).error; } catch { /* a refusal of the guard is a plain text */ }
    emit("refused", sentence);
  } catch {
    emit("cut", true);
  }
  return false;
}

/** Let all be drawn again. */
export function askFrame() {
  if (asked || !scene) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    emit("scene", scene);
  });
}

/** A side that only begins has no picture yet: the last one stays meanwhile. */
function withPicture(side, place) {
  if (side.queues) return side;
  const last = scene?.sides[place];
  if (side.error && !last) emit("refused", side.error);
  return { ...last, error: side.error ?? "", story: [], marks: [], wrongs: [] };
}

function received(event) {
  const came = JSON.parse(event.data);
  if (came.run !== run) {
    run = came.run;
    emit("forgotten");
  }
  came.sides = came.sides.map(withPicture).filter((side) => side.queues);
  scene = came;
  for (const side of came.sides)
    for (const queue of side.queues) queue.keys = queue.keys.map((key) => (key < 0 ? null : key)); // -1: it has no key
  const added = { story: [], marks: [], wrongs: [] };
  for (const side of came.sides)
    for (const kind of Object.keys(added))
      for (const one of side[kind] ?? []) added[kind].push({ ...one, mode: side.mode });
  if (added.story.length || added.marks.length || added.wrongs.length) emit("told", added, came);
  askFrame();
}

export function connect() {
  const source = new EventSource("/scenes");
  source.addEventListener("scene", received);
  source.addEventListener("error", () => emit("cut", true));
  source.addEventListener("open", () => {
    run = null; // a new connection tells the whole story again
    emit("cut", false);
  });
}
