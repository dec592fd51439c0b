// Take it home: the command that repeats the run, its plan, a test for pytest, the page of its timeline.

import { emit } from "./feed.js";
import { h, setText, t } from "./parts.js";

const home = document.getElementById("home"), box = document.getElementById("home-parts");

function copy(text) {
  const button = h("button", { type: "button", class: "small", text: t("home.copy"), click: async () => {
    await navigator.clipboard.writeText(text);
    setText(button, t("home.copied"));
    setTimeout(() => setText(button, t("home.copy")), 1500);
  } });
  return button;
}

function save(name, text) {
  return h("button", { type: "button", class: "small", text: t("home.save"), click: () => {
    const address = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
    h("a", { href: address, download: name }).click();
    URL.revokeObjectURL(address);
  } });
}

function part(title, text, ...buttons) {
  return h("div", {}, h("div", { class: "panel-head" }, h("b", { text: title }), h("span", {}, copy(text), " ", ...buttons)),
    h("pre", { text, tabindex: 0, "aria-label": title }));
}

async function fill() {
  const answer = await fetch("/home");
  const said = await answer.json();
  if (!answer.ok) return emit("refused", said.error);
  const parts = [part(t("home.command"), said.command), part(t("home.plan", { file: said.plan_file }), said.plan, save(said.plan_file, said.plan))];
  if (said.test) parts.push(part(t("home.test", { file: said.test_file }), said.test, save(said.test_file, said.test)));
  parts.push(h("p", {}, h("a", { href: "/timeline", download: said.plan_file.replace(/plan$/, "html"), text: t("home.timeline") })));
  box.replaceChildren(...parts);
}

home.addEventListener("toggle", () => { if (home.open) fill(); });
