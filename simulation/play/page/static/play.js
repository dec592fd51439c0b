// The page of `lockstep-sim play`: its keys, its choices, what explains a thing, and the start of all parts.

import { act, connect, on, setFollow } from "./feed.js";
import { explanation, setText, t } from "./parts.js";
import "./home.js";
import "./lessons.js";
import "./picture.js";
import "./story.js";
import { close } from "./touch.js";
import { back, faster, oneEvent, oneSecond, toMark, toggle } from "./time.js";

const refused = document.getElementById("refused"), cut = document.getElementById("cut"), tip = document.getElementById("tip");

// Keys --------------------------------------------------------------------------------------------------------

const KEYS = {
  " ": toggle, ".": oneEvent, ArrowRight: oneSecond, ArrowLeft: back, "+": () => faster(1), "=": () => faster(1), "-": () => faster(-1),
  "[": () => toMark(-1), "]": () => toMark(1), u: () => act({ act: "undo" }), Home: () => act({ act: "restart" }), End: () => act({ act: "finish" }),
  "?": () => document.getElementById("help").toggleAttribute("open"),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    if (close() || hideTip()) return;
    refused.hidden = true;
    setFollow(null);
    return;
  }
  const { localName, type } = event.target;
  if (localName === "input" || localName === "select" || localName === "textarea") {
    if (type !== "range" || event.key.startsWith("Arrow") || event.key === "Home" || event.key === "End") return;
  }
  if (event.key === " " && (localName === "button" || localName === "summary" || localName === "a")) return;
  const does = KEYS[event.key];
  if (!does) return;
  event.preventDefault();
  does();
});

// What explains a thing ---------------------------------------------------------------------------------------

let hiding = 0;
let explained = null;

function showTip(node) {
  clearTimeout(hiding);
  if (explained === node) return;
  explained = node;
  tip.replaceChildren(...explanation(node.dataset.explain));
  tip.hidden = false;
  const at = node.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(at.left, innerWidth - tip.offsetWidth - 12))}px`;
  tip.style.top = `${at.bottom + 8 + tip.offsetHeight > innerHeight ? at.top - tip.offsetHeight - 6 : at.bottom + 6}px`;
}
function hideTip() {
  clearTimeout(hiding);
  const was = !tip.hidden;
  tip.hidden = true;
  explained = null;
  return was;
}
const hideSoon = () => { clearTimeout(hiding); hiding = setTimeout(hideTip, 300); };
let showing = 0;
document.addEventListener("pointerover", (event) => {
  clearTimeout(showing);
  if (tip.contains(event.target)) return clearTimeout(hiding);
  const node = event.target.closest?.("[data-explain]");
  if (!node) return hideSoon();
  showing = setTimeout(() => { if (document.getElementById("menu").hidden && node.isConnected) showTip(node); }, explained ? 80 : 450);
});
document.addEventListener("focusin", (event) => {
  if (tip.contains(event.target)) return clearTimeout(hiding);
  const node = event.target.closest("[data-explain]");
  if (node && node.matches(":focus-visible") && document.getElementById("menu").hidden) showTip(node);
  else hideSoon();
});
document.addEventListener("click", (event) => {
  if (tip.contains(event.target)) return;
  clearTimeout(showing); // who clicks asks for no explanation: it would take the next Escape
  hideTip();
});

// Choices -----------------------------------------------------------------------------------------------------

for (const choice of document.querySelectorAll("[data-modes]"))
  choice.addEventListener("click", () => act({ act: "sides", modes: choice.dataset.modes.split(" ") }));

document.getElementById("open").addEventListener("submit", (event) => {
  event.preventDefault();
  const form = new FormData(event.target);
  act({ act: "open", what: String(form.get("what")).trim(), seed: Number(form.get("seed")) });
});

on("scene", (scene) => {
  setText(document.getElementById("title"), scene.title);
  setText(document.getElementById("seed"), t("title.seed", { seed: scene.seed }));
  const modes = scene.sides.map((one) => one.mode).join(" ");
  for (const choice of document.querySelectorAll("[data-modes]")) {
    const pressed = choice.dataset.modes === modes;
    if (choice.ariaPressed !== String(pressed)) choice.ariaPressed = String(pressed);
  }
  document.getElementById("watch-only").hidden = scene.can_touch;
});
on("refused", (sentence) => {
  setText(refused.firstElementChild, sentence);
  refused.hidden = false;
});
refused.lastElementChild.addEventListener("click", () => { refused.hidden = true; });
on("cut", (isCut) => { cut.hidden = !isCut; });

connect();
