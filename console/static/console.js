"use strict";
// A page with data-live asks for its main part again after each event; a link with data-details opens in a dialog.
// Without this script all links work, and a reload shows what is new.

const main = document.getElementById("main");
const cut = document.getElementById("cut");
const details = document.getElementById("details");
let asking = false;
let again = false;

async function part(address) {
  const answer = await fetch(address, { headers: { "X-Live": "1" }, credentials: "same-origin" });
  return answer.text();
}

// Where the keyboard is, as a way to find the same element in the new part.
function focused() {
  const element = document.activeElement;
  if (!element || !main.contains(element)) return null;
  if (element.id) return "#" + CSS.escape(element.id);
  const href = element.getAttribute("href");
  return href ? `${element.localName}[href="${CSS.escape(href)}"]` : null;
}

function isTyping() {
  const element = document.activeElement;
  return element && main.contains(element) && /^(input|select|textarea)$/.test(element.localName);
}

async function refresh() {
  if (asking) { again = true; return; }
  if (document.hidden || isTyping()) return;
  asking = true;
  try {
    const text = await part(location.href);
    const open = [...main.querySelectorAll("details[open][id]")].map((one) => one.id);
    const place = focused();
    main.innerHTML = text;
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    if (place) main.querySelector(place)?.focus({ preventScroll: true });
    cut.hidden = true;
  } catch {
    cut.hidden = false;
  } finally {
    asking = false;
    if (again) { again = false; refresh(); }
  }
}

document.addEventListener("click", async (event) => {
  const link = event.target.closest("a[data-details]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  try {
    details.innerHTML = await part(link.href.baseVal ?? link.href);
  } catch {
    cut.hidden = false;
    return;
  }
  details.showModal();
  details.querySelector("tr.chosen")?.scrollIntoView({ block: "center" });
});

details.addEventListener("click", (event) => {
  if (event.target === details || event.target.closest("[data-close]")) details.close();
});

if ("live" in document.body.dataset) {
  const source = new EventSource("/events");
  source.addEventListener("changed", refresh);
  source.addEventListener("error", () => { cut.hidden = false; });
  source.addEventListener("open", () => { if (!cut.hidden) refresh(); });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
}
