"use strict";
// A page with data-live asks for its main part again after each event; a link with data-details opens in a dialog.
// Without this script all links work, and a reload shows what is new.

const main = document.getElementById("main");
const cut = document.getElementById("cut");
const details = document.getElementById("details");
let asking = false;
let again = false;
let source = null;
let paused = false;
let pressed = false;  // a button of the mouse, or a finger
let missed = false;

async function part(address) {
  const answer = await fetch(address, { headers: { "X-Live": "1" }, credentials: "same-origin" });
  if (answer.status === 401) location.reload();  // to the login, and from there back
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
  if (document.hidden || paused || isTyping()) return;
  asking = true;
  try {
    const text = await part(location.href);
    cut.hidden = true;
    if (paused || pressed || isTyping()) { missed = true; return; }
    const open = [...main.querySelectorAll("details[open][id]")].map((one) => one.id);
    const place = focused();
    main.innerHTML = text;
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    if (place) main.querySelector(place)?.focus({ preventScroll: true });
  } catch {
    cut.hidden = false;
  } finally {
    asking = false;
    if (again) { again = false; refresh(); }
  }
}

// A click needs the element that was pressed: the part changes when that is over.
function released() {
  setTimeout(() => {
    pressed = false;
    if (missed) { missed = false; refresh(); }
  });
}
addEventListener("pointerdown", (event) => { pressed = event.button === 0; });
addEventListener("pointerup", released);
addEventListener("pointercancel", released);

// The list stands still at once; without this script the link asks for a page that does not ask again.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-pause]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  paused = !paused;
  [link.textContent, link.dataset.pause] = [link.dataset.pause, link.textContent];
  listen();
  refresh();
});

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

// A page that nobody sees, or that is paused, keeps no stream open: it costs the console and the brokers nothing.
function listen() {
  if (document.hidden || paused) {
    source?.close();
    source = null;
    return;
  }
  if (source) return;
  source = new EventSource(document.body.dataset.live);
  source.addEventListener("changed", refresh);
  source.addEventListener("error", () => {
    cut.hidden = false;
    // A refused stream is not opened again: after a restart of the console the session is gone, and the part says so.
    if (source?.readyState === EventSource.CLOSED) part(location.href).catch(() => {});
  });
  source.addEventListener("open", () => { if (!cut.hidden) refresh(); });
}

if ("live" in document.body.dataset) {
  document.addEventListener("visibilitychange", () => { listen(); refresh(); });
  listen();
}
