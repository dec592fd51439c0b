// What can be done to the run: menus of hosts, links, queues; the plan with what was added to it.

import { act, follow, now, on, setFollow } from "./feed.js";
import { explanation, h, keep, linkOf, setText, t } from "./parts.js";

const menu = document.getElementById("menu"), plan = document.getElementById("plan"), undo = document.getElementById("undo");
const DURATIONS = ["", "5s", "20s", "70s", "3m"];
let opener = null;
let lasts = "";

const lasting = (fault, amount = "") => ({ fault, amount, lasts: true });
const once = (fault, amount = "") => ({ fault, amount, lasts: false });

/** The touches of a host, by what it is and how it is. */
function touchesOfHost(host) {
  if (host.state === "down") return [once("start")];
  const ends = host.lasting.length || host.state === "stopped" || host.state === "asleep" ? [once("go-on")] : [];
  const halts = host.state === "up" ? [lasting("stall"), lasting("sleep")] : [];
  const ways = {
    member: [once("kill"), once("leave"), ...halts, lasting("slow-listener", "2s"), lasting("fail-listener"), lasting("slow-cpu", "20ms")],
    broker: [once("kill"), once("power-off"), once("leave"), ...halts, lasting("slow-disk", "500ms"), lasting("hang-disk"), lasting("slow-cpu", "20ms")],
    producer: halts,
    names: [...halts, once("kill"), lasting("stale-routes", "20s")],
  };
  return [...ends, ...(ways[host.role] ?? [])];
}

function touchesOfLink(link) {
  const ends = link?.lasting.length ? [once("mend")] : [];
  return [...ends, once("cut"), once("cut-one-side"), lasting("partition"), lasting("hold"), { ...lasting("hold"), turned: true }, lasting("slow", "500ms")];
}

function lineOf(touch, thing) {
  const target = touch.turned ? thing.split("-").reverse().join("-") : thing;
  const duration = touch.lasts && lasts ? `+${lasts}` : "";
  return `${touch.fault} ${target}${duration}${touch.amount ? `=${touch.amount}` : ""}`;
}

function item(text, line, does) {
  const button = h("button", { type: "button", role: "menuitem", class: "item", tabindex: -1, click: () => { close(); does(); } }, h("span", { text }));
  if (line) button.append(h("code", { text: line }));
  return button;
}

function itemsOf(kind, thing) {
  const scene = now(), side = scene.sides[0];
  if (kind === "queue") {
    const isFollowed = follow()?.queue === thing;
    return [item(t(isFollowed ? "follow.stop" : "follow.queue"), "", () => setFollow(isFollowed ? null : { queue: thing }))];
  }
  if (!scene.can_touch) return [h("p", { class: "quiet", text: t("touch.watch_only") })];
  if (kind === "host") {
    const host = scene.sides.map((one) => one.hosts.find((host) => host.name === thing)).find(Boolean);
    if (!host) return [];
    const touches = touchesOfHost(host).map((touch) => touchItem(touch, thing));
    if (host.role !== "producer" || host.state !== "up") return touches;
    const sends = side.key_names.slice(0, 16).map((name, key) => {
      const line = `send ${thing}=${name}`;
      return item(t("touch.send", { key: name }), line, () => act({ act: "touch", line }));
    });
    return [...sends, ...touches];
  }
  const [a, b] = thing.split("-");
  return touchesOfLink(linkOf(side, a, b)).map((touch) => touchItem(touch, thing));
}

function touchItem(touch, thing) {
  const [a, b] = touch.turned ? thing.split("-").reverse() : thing.split("-");
  const button = item(t(`touch.${touch.fault}`, { a, b, amount: touch.amount }), lineOf(touch, thing), () => act({ act: "touch", line: lineOf(touch, thing) }));
  button.touch = { touch, thing };
  return button;
}

function durations() {
  const choice = h("select", { id: "lasts", change: () => {
    lasts = choice.value;
    for (const button of menu.querySelectorAll(".item")) if (button.touch) setText(button.querySelector("code"), lineOf(button.touch.touch, button.touch.thing));
  } }, ...DURATIONS.map((text) => h("option", { value: text, text: text ? t("touch.for", { time: text }) : t("touch.until") })));
  choice.value = lasts;
  return h("label", { class: "lasts" }, t("touch.lasts"), choice);
}

function open(button) {
  const { touch: kind, thing } = button.dataset;
  opener = { kind, thing, mode: button.closest(".side")?.dataset.mode };
  const items = itemsOf(kind, thing);
  const head = h("p", { class: "menu-head" }, h("b", { text: thing }), " ", ...explanation(button.dataset.explain));
  menu.replaceChildren(head, ...items);
  if (items.some((one) => one.touch?.touch.lasts)) head.after(durations());
  menu.hidden = false;
  const at = button.getBoundingClientRect();
  menu.style.left = `${Math.max(8, Math.min(at.left, innerWidth - menu.offsetWidth - 12))}px`;
  menu.style.top = `${Math.max(8, Math.min(at.bottom + 4, innerHeight - menu.offsetHeight - 8))}px`;
  (menu.querySelector(".item") ?? menu).focus();
}

export function close() {
  if (menu.hidden) return false;
  menu.hidden = true;
  const { kind, thing, mode } = opener;
  document.querySelector(`.side[data-mode="${mode}"] [data-touch="${kind}"][data-thing="${CSS.escape(thing)}"]`)?.focus();
  return true;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-touch]");
  if (button) open(button);
  else if (!menu.hidden && !menu.contains(event.target)) close();
});
menu.addEventListener("keydown", (event) => {
  const items = [...menu.querySelectorAll(".item")], at = items.indexOf(document.activeElement);
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (event.key === "Tab") {
    const all = [...menu.querySelectorAll("a, button, select")], here = all.indexOf(document.activeElement);
    all[(here + (event.shiftKey ? -1 : 1) + all.length) % all.length]?.focus();
    event.preventDefault();
  } else if (step && document.activeElement.localName !== "select") {
    items[(at + step + items.length) % items.length]?.focus();
    event.preventDefault();
  }
  if (event.key !== "Escape") event.stopPropagation();
});

// The plan ----------------------------------------------------------------------------------------------------

undo.addEventListener("click", () => act({ act: "undo" }));
on("scene", (scene) => {
  const added = new Set(scene.touches);
  keep(plan, scene.plan, (line, number) => `${number} ${line}`, (line) => h("li", {}, h("code", { text: line })),
    (node, line) => node.classList.toggle("added", added.has(line)));
  undo.disabled = !scene.touches.length;
  document.getElementById("no-plan").hidden = scene.plan.length > 0;
});
