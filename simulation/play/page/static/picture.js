// Draws a side of the run: producers and name servers, brokers with their queues, members with their ProcessQueues.

import { follow, on } from "./feed.js";
import { colourClass, h, keep, linkOf, seconds, setAttr, setText, t } from "./parts.js";
import { ROW_HEIGHT, drawCache, drawQueue } from "./rows.js";
import { drawWires } from "./wires.js";

const CACHE_MAX = 6, CACHE_MANY_MAX = 3; // tiles of a ProcessQueue, and where there are many
const MANY = 12; // queues; more of them are drawn smaller
const root = document.getElementById("sides");
const sizes = new ResizeObserver((entries) => {
  for (const entry of entries) entry.target.closest(".side").wires = "";
  if (last) draw(last);
});
let last = null;

/** A thing that can be touched: its menu opens by click or Enter (touch.js). */
function touchable(kind, thing, name) {
  return h("button", { class: `touch touch-${kind}`, type: "button", "data-touch": kind, "data-thing": thing, "aria-haspopup": "menu" }, name);
}

const GLYPHS = { down: "\u2715", stopped: "\u275a\u275a", asleep: "\u263e", changes: "\u2026", up: "" };

function lastingText(lasting) {
  return lasting.map((one) => one.text || one.fault).join(", ");
}

/** The head of a card: name, state by shape and word, and what lasts. */
function makeHost(host) {
  const name = h("b", { class: "name", text: host.name });
  const state = h("span", { class: "state" }), lasting = h("span", { class: "lasting" });
  const button = touchable("host", host.name, name);
  button.dataset.explain = host.role;
  button.append(state, lasting);
  return Object.assign(button, { stateNode: state, lastingNode: lasting });
}

function updateHost(button, host) {
  setText(button.stateNode, host.state === "up" ? "" : `${GLYPHS[host.state] ?? ""} ${t(`state.${host.state}`)}`);
  setText(button.lastingNode, lastingText(host.lasting));
  setAttr(button, "data-state", host.state);
}

// Queues ------------------------------------------------------------------------------------------------------

function makeLock() {
  const rest = h("circle", { class: "rest", cx: 16, cy: 16, r: 13, pathLength: 100 });
  const owner = h("text", { x: 16, y: 16.5 });
  const lock = h("svg", { class: "lock", viewBox: "0 0 32 32", role: "img", "data-explain": "lock" },
    h("circle", { class: "track", cx: 16, cy: 16, r: 13 }), rest, owner);
  return Object.assign(lock, { rest, owner });
}

function updateLock(node, lock, now, owners) {
  if (!lock) {
    setAttr(node, "class", "lock free");
    setText(node.owner, "\u2013");
    setAttr(node, "aria-label", t("lock.free"));
    return;
  }
  const whole = Math.max(1, lock.ends_ms - lock.renewed_ms), left = Math.max(0, lock.ends_ms - now);
  const share = Math.min(100, (100 * left) / whole);
  const number = owners.get(lock.owner);
  setAttr(node, "class", `lock ${colourClass(number)}${lock.draining ? " draining" : ""}${left ? "" : " over"}`);
  const arc = `${share.toFixed(1)} 200`;
  if (node.arc !== arc) {
    node.arc = arc;
    node.rest.style.strokeDasharray = arc;
  }
  setText(node.owner, lock.owner.length > 4 ? lock.owner.slice(-3) : lock.owner);
  const said = { owner: lock.owner, rest: seconds(left), epoch: lock.epoch || "\u2013" };
  setAttr(node, "aria-label", t(lock.draining ? "lock.draining" : left ? "lock.held" : "lock.over", said));
}

function makeQueue(queue) {
  const lock = makeLock();
  const canvas = h("canvas", { role: "img", "data-explain": "queue", height: ROW_HEIGHT });
  const head = touchable("queue", queue.id, h("b", { text: queue.label }));
  head.dataset.explain = "queue";
  const committed = h("span", { "data-explain": "committed" }), max = h("span", { "data-explain": "max" });
  const wrong = h("span", { class: "wrong-mark", hidden: true, text: "\u2717" }), waits = h("p", { class: "waits", hidden: true });
  const node = h("li", { class: "queue", "data-queue": queue.id },
    head, lock, h("div", { class: "messages" }, canvas), h("span", { class: "offsets" }, committed, max, wrong), waits);
  return Object.assign(node, { lock, canvas, committed, max, wrong, waits });
}

function updateQueue(node, queue, view) {
  updateLock(node.lock, queue.lock, view.side.now_ms, view.owners);
  updateWaits(node, queue, view);
  setText(node.committed, `\u2691 ${queue.committed}`);
  setText(node.max, `\u21e5 ${queue.max}`);
  const holders = view.holders.get(queue.id) ?? [];
  const running = new Map();
  for (const { number, queue: held } of holders)
    for (const offset of held.running) running.set(offset, [...(running.get(offset) ?? []), number]);
  const cached = holders.find(({ queue: held }) => held.cached > 0 && !held.dropped);
  const deliveries = view.deliveries.get(queue.id) ?? new Map();
  const faded = isQueueFaded(queue, view.followed);
  node.classList.toggle("faded", faded);
  const wrong = view.wrongs.has(queue.id);
  node.wrong.hidden = !wrong;
  node.classList.toggle("has-wrong", wrong);
  drawQueue(node.canvas, {
    ...queue, running, deliveries, cachedFrom: cached?.queue.first, cachedTo: cached?.queue.last, cachedBy: cached ? cached.number : null,
    fadedBut: view.followed?.key ?? null, faded,
  }, view.width);
  setAttr(node.canvas, "aria-label", t("queue.row", { committed: queue.committed, max: queue.max, keys: queue.keys.slice(0, 24).join(" ") }));
}

/** Why nobody goes on with a queue: its owner cannot, and its lock lasts, or nobody has asked for it yet. */
function updateWaits(node, queue, view) {
  const owner = queue.lock?.owner, state = view.states.get(owner), left = queue.lock ? queue.lock.ends_ms - view.side.now_ms : 0;
  const waits = state !== undefined && state !== "up" && state !== "changes";
  if (node.waits.hidden === waits) {
    node.waits.hidden = !waits;
    node.closest(".side").wires = ""; // the rows below have moved
  }
  if (!waits) return;
  const why = left > 0 ? "queue.waits" : state === "down" ? "queue.unasked" : "queue.silent";
  setText(node.waits, t(why, { owner, state: t(`state.${state}`), rest: seconds(left) }));
}

function isQueueFaded(queue, followed) {
  if (followed?.queue) return queue.id !== followed.queue;
  return followed?.key !== undefined && !queue.keys.includes(followed.key) && homes.get(followed.key) !== queue.id;
}

// Members -----------------------------------------------------------------------------------------------------

function makeMember(member) {
  const head = makeHost(member.host);
  const plugs = h("span", { class: "plugs" }), held = h("ul", { class: "held" });
  const none = h("p", { class: "none", text: t("member.none") });
  const card = h("li", { class: "card member", "data-host": member.name }, head, plugs, held, none);
  return Object.assign(card, { head, plugs, held, none });
}

function updateMember(card, member, view) {
  updateHost(card.head, member.host);
  setAttr(card, "class", `card member ${colourClass(view.owners.get(member.name))} is-${member.host.state}`);
  keep(card.plugs, view.brokers.map((broker) => ({ broker, link: linkOf(view.side, member.name, broker) })), (one) => one.broker,
    (one) => makePlug(member.name, one.broker, view.brokers.length), updatePlug);
  const queues = member.host.state === "down" ? [] : member.queues;
  keep(card.held, queues, (one) => one.id, makeHeld, (node, one) => updateHeld(node, one, view));
  card.none.hidden = queues.length > 0 || member.host.state === "down";
}

function makePlug(member, broker, brokers) {
  const word = h("span", { class: "link-name", text: brokers > 1 ? broker : t("link.short") }), state = h("span", { class: "lasting" });
  const button = touchable("link", `${member}-${broker}`, h("span", { "aria-hidden": "true", class: "glyph", text: "\u21c4" }));
  button.append(word, state);
  setAttr(button, "data-broker", broker);
  button.dataset.explain = "link";
  return Object.assign(button, { stateNode: state });
}

function updatePlug(button, { broker, link }) {
  const lasting = link?.lasting ?? [];
  setText(button.stateNode, lastingText(lasting));
  setAttr(button, "data-fault", lasting.length ? lasting[0].fault : null);
  setAttr(button, "aria-label", t("link.label", { link: button.dataset.thing, state: lastingText(lasting) || t("link.well") }));
  button.broker = broker;
}

function makeHeld() {
  const label = h("b", {}), lock = h("span", { class: "client-lock", "data-explain": "client_lock" });
  const canvas = h("canvas", { role: "img", "data-explain": "cached" }), said = h("span", { class: "said" });
  const node = h("li", { class: "process-queue", "data-explain": "process_queue" }, label, lock, canvas, said);
  return Object.assign(node, { label, lock, canvas, saidNode: said });
}

function updateHeld(node, held, view) {
  node.queueId = held.id;
  setText(node.label, view.labels.get(held.id) ?? held.id);
  setText(node.lock, held.locked ? "\u25c9" : "\u25cb");
  setAttr(node.lock, "aria-label", t(held.locked ? "held.locked" : "held.unlocked"));
  setAttr(node.lock, "role", "img");
  node.classList.toggle("dropped", held.dropped);
  node.classList.toggle("suspended", held.suspended);
  const words = [];
  if (held.dropped) words.push(t("held.dropped"));
  if (held.suspended) words.push(t("held.suspended"));
  if (!held.locked && !view.isFifo) words.push(t("held.unlocked"));
  setText(node.saidNode, words.join(", "));
  const queue = view.queues.get(held.id), tiles = [];
  const from = held.running.length ? Math.min(held.first, ...held.running) : held.first;
  for (let offset = from; held.cached > 0 && offset <= held.last && tiles.length < view.cacheMax; offset++) {
    const key = queue?.keys[offset - queue.first] ?? null;
    const isFaded = view.followed?.key !== undefined && view.followed.key !== key;
    tiles.push({ key, running: held.running.includes(offset), faded: isFaded });
  }
  drawCache(node.canvas, tiles, Math.max(0, held.cached - tiles.length));
  setAttr(node.canvas, "aria-label", t("held.cached", { cached: held.cached, running: held.running.join(" ") || t("held.nothing") }));
  node.classList.toggle("faded", Boolean(queue && isQueueFaded(queue, view.followed)));
}

// A side ------------------------------------------------------------------------------------------------------

function makeSide(side) {
  const parts = {
    mode: h("span", { class: "mode", "data-explain": side.mode, text: t(`mode.${side.mode}`) }), clock: h("span", { class: "clock" }),
    hash: h("code", { class: "hash", "data-explain": "hash" }), verdict: h("span", { class: "side-verdict", "data-explain": "judge" }),
    error: h("p", { class: "banner gone", hidden: true }),
    senders: h("ul", { class: "column senders" }), brokers: h("ul", { class: "column brokers" }), members: h("ul", { class: "column members" }),
    svg: h("svg", { class: "wires", "aria-hidden": "true" }),
  };
  const stage = h("div", { class: "stage" }, parts.svg, parts.senders, parts.brokers, parts.members);
  const node = h("section", { class: "side", "data-mode": side.mode, "aria-label": t("side.label", { mode: t(`mode.${side.mode}`) }) },
    h("h2", {}, parts.mode, parts.clock, parts.verdict, parts.hash), parts.error, stage);
  sizes.observe(stage);
  return Object.assign(node, { parts, stage, wires: "" });
}

function viewOf(side, node) {
  const members = side.hosts.filter((one) => one.role === "member");
  const owners = new Map(members.map((one, number) => [one.name, number]));
  const states = new Map(side.hosts.map((one) => [one.name, one.state]));
  const brokers = side.hosts.filter((one) => one.role === "broker").map((one) => one.name);
  const labels = new Map(side.queues.map((one) => [one.id, brokers.length > 1 ? one.id : one.id.slice(one.broker.length + 1)]));
  const holders = new Map(), deliveries = new Map();
  for (const member of side.members)
    for (const queue of member.queues) {
      if (!holders.has(queue.id)) holders.set(queue.id, []);
      holders.get(queue.id).push({ number: owners.get(member.name) ?? 0, queue });
    }
  for (const one of side.deliveries) {
    if (!deliveries.has(one.queue)) deliveries.set(one.queue, new Map());
    const share = Math.max(0, Math.min(1, (one.ends_ms - side.now_ms) / Math.max(1, one.ends_ms - one.since_ms)));
    for (const offset of one.offsets) deliveries.get(one.queue).set(offset, { share, owner: owners.get(one.owner) ?? 0 });
  }
  return { side, members, owners, states, brokers, labels, holders, deliveries, queues: new Map(side.queues.map((one) => [one.id, one])),
    cacheMax: side.queues.length > MANY ? CACHE_MANY_MAX : CACHE_MAX, followed: follow(), isFifo: side.mode === "fifo", wrongs: wrongQueues.get(side.mode) ?? new Set(), width: node.rowWidth ?? 300 };
}

const homes = new Map(); // key -> the queue where it was seen last
const wrongQueues = new Map(); // mode -> queues with a violation
on("told", (added) => {
  for (const one of added.story) if (one.queue && one.key !== null) homes.set(one.key, one.queue);
  for (const one of added.wrongs) {
    if (!wrongQueues.has(one.mode)) wrongQueues.set(one.mode, new Set());
    wrongQueues.get(one.mode).add(one.queue);
  }
});
on("forgotten", () => {
  wrongQueues.clear();
  homes.clear();
});

function makeBroker(host) {
  const head = makeHost(host), queues = h("ul", { class: "queues" });
  return Object.assign(h("li", { class: "card broker", "data-host": host.name }, head, queues), { head, queues });
}

function updateSide(node, side) {
  const { parts } = node;
  setText(parts.clock, seconds(side.now_ms));
  setText(parts.hash, side.hash);
  parts.error.hidden = !side.error;
  setText(parts.error, side.error);
  const wrong = wrongQueues.get(side.mode)?.size ?? 0;
  setText(parts.verdict, wrong ? `\u2717 ${t("verdict.wrong")}` : `\u2713 ${t("verdict.good")}`);
  parts.verdict.classList.toggle("bad", wrong > 0);
  let changed = false;
  const senders = side.hosts.filter((one) => one.role === "producer" || one.role === "names");
  changed = keep(parts.senders, senders, (one) => one.name, (host) => {
    const head = makeHost(host);
    return Object.assign(h("li", { class: `card ${host.role}`, "data-host": host.name }, head), { head });
  }, (card, host) => { updateHost(card.head, host); setAttr(card, "class", `card ${host.role} is-${host.state}`); }) || changed;
  const view = viewOf(side, node);
  changed = keep(parts.brokers, side.hosts.filter((one) => one.role === "broker"), (one) => one.name, makeBroker, (card, host) => {
    updateHost(card.head, host);
    setAttr(card, "class", `card broker is-${host.state}`);
    const queues = side.queues.filter((one) => one.broker === host.name).map((one) => ({ ...one, label: view.labels.get(one.id) }));
    changed = keep(card.queues, queues, (one) => one.id, makeQueue, (row, queue) => updateQueue(row, queue, view)) || changed;
  }) || changed;
  const named = new Map(side.members.map((one) => [one.name, one.queues]));
  const members = view.members.map((host) => ({ name: host.name, host, queues: named.get(host.name) ?? [] }));
  changed = keep(parts.members, members, (one) => one.name, makeMember, (card, member) => updateMember(card, member, view)) || changed;
  node.classList.toggle("many", side.queues.length > MANY);
  const row = parts.brokers.querySelector(".messages");
  if (changed || node.wires === "") {
    const width = row ? row.clientWidth : 300;
    if (width !== node.rowWidth) {
      node.rowWidth = width;
      for (const broker of parts.brokers.children)
        for (const queue of broker.queues.children) updateQueue(queue, { ...view.queues.get(queue.dataset.queue) }, { ...view, width });
    }
  }
  drawWires(node, view);
}

function draw(scene) {
  last = scene;
  for (const side of scene.sides)
    for (const queue of side.queues) for (const key of queue.keys) homes.set(key, queue.id);
  keep(root, scene.sides, (one) => one.mode, makeSide, updateSide);
  root.classList.toggle("two", scene.sides.length > 1);
}

on("scene", draw);
on("followed", () => last && draw(last));
