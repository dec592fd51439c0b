"use strict";
// All plots of a run show one window of time, from place `a` to place `b` in milliseconds. See axis.py for places.
for (const plots of document.querySelectorAll(".plots")) {
  const length = Number(plots.dataset.length), segments = JSON.parse(plots.dataset.segments);
  const find = (what) => plots.querySelector(what);
  const ticks = find(".ticks"), grid = find(".grid"), chosen = find(".chosen"), said = find(".window");
  // An element has its place as `data-a` and `data-b`, or, where there are many, as a percentage of the whole.
  const placed = [...plots.querySelectorAll("svg [data-a]")].map((one) =>
    [one, Number(one.dataset.a), one.dataset.b === undefined ? null : Number(one.dataset.b)]);
  for (const one of plots.querySelectorAll("svg .at[x]")) {
    const [x, wide] = ["x", "width"].map((name) => (length * parseFloat(one.getAttribute(name) ?? one.dataset.w)) / 100);
    placed.push([one, x, wide >= 0 ? x + wide : null]);
  }
  const curves = plots.querySelectorAll(".zoomed");
  const told = plots.parentElement.querySelector(".told"), legend = plots.parentElement.querySelector(".legend");
  const shortest = Math.min(length, 0.001);
  let a = 0, b = length, dragged = null;

  function show(from, to) {
    const width = Math.min(Math.max(to - from, shortest), length);
    a = Math.min(Math.max((from + to - width) / 2, 0), length - width);
    b = a + width;
    const percent = (place) => (100 * (place - a)) / width;
    for (const [one, begin, end] of placed) {
      const away = end === null ? begin < a || begin > b : end < a || begin > b;
      const x = away ? -50 : Math.max(percent(begin), end === null ? -50 : 0);
      const shown = end === null || away ? 0 : Math.min(percent(end), 100) - x;
      if (one.hasAttribute("x")) one.setAttribute("x", x + "%"); // an owner's number stays in sight as long as its bar
      else one.style.setProperty("--x", x + "%");
      if (one.classList.contains("who")) one.classList.toggle("narrow", shown * ticks.clientWidth < 100 * (one.dataset.px ?? 24));
      else if (one.hasAttribute("width")) one.setAttribute("width", (away ? 0 : Math.max(shown, 0.15)) + "%");
      else if (end !== null) one.style.setProperty("--w", shown + "%");
    }
    const scale = length / width;
    for (const curve of curves) curve.setAttribute("transform", `matrix(${scale} 0 0 1 ${(-1000 * a) / width} 0)`);
    rule(width);
    const whole = width >= length;
    for (const button of plots.querySelectorAll("[data-do]")) {
      const does = button.dataset.do;
      button.disabled = whole ? does !== "in" : (does === "left" && a <= 0) || (does === "right" && b >= length);
    }
    said.textContent = whole ? "all " + lengthText(length) : `${lengthText(width)} of ${lengthText(length)}, from ${timeText(timeOf(a), stepOf(width / 100))}`;
    plots.dispatchEvent(new CustomEvent("shown", { detail: [a, b] }));
  }

  // Another script may ask for a window, and hears of each one.
  plots.addEventListener("show", (event) => show(...event.detail));
  plots.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) zoom(event.deltaY < 0 ? 0.8 : 1.25, a + share(event) * (b - a));
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) move((event.deltaX || event.deltaY) / 800);
    else return; // the page scrolls
    event.preventDefault();
  }, { passive: false });

  function rule(width) {
    const step = stepOf(width / Math.min(Math.max(Math.floor(ticks.clientWidth / 90), 3), 9));
    ticks.textContent = grid.textContent = "";
    for (const [begin, end, time] of segments) {
      const shift = time - begin;
      let number = Math.ceil((Math.max(a, begin) + shift) / step);
      for (; number * step <= Math.min(b, end) + shift + step * 1e-9; number++) {
        const x = (100 * (number * step - shift - a)) / width + "%";
        const text = document.createElement("span");
        text.textContent = timeText(number * step, step);
        text.style.left = x;
        if (parseFloat(x) > 92) text.className = "end";
        ticks.append(text);
        const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
        for (const [name, value] of Object.entries({ x1: x, x2: x, y1: 0, y2: "100%" })) line.setAttribute(name, value);
        grid.append(line);
      }
    }
  }

  function timeOf(place) {
    const [begin, , time] = segments.findLast((segment) => segment[0] <= place) || segments[0];
    return time + place - begin;
  }

  const zoom = (factor, middle = (a + b) / 2) => show(middle - (middle - a) * factor, middle + (b - middle) * factor);
  const move = (share) => show(a + (b - a) * share, b + (b - a) * share);
  const acts = { in: () => zoom(0.5), out: () => zoom(2), left: () => move(-0.25), right: () => move(0.25), all: () => show(0, length) };
  const keys = { "+": "in", "=": "in", "-": "out", _: "out", ArrowLeft: "left", ArrowRight: "right", 0: "all", Home: "all", Escape: "all" };

  plots.addEventListener("keydown", (event) => {
    if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    if (dragged !== null && event.key === "Escape") release();
    else acts[keys[event.key]]();
  });
  for (const button of plots.querySelectorAll("[data-do]")) button.addEventListener("click", () => acts[button.dataset.do]());

  const share = (event) => {
    const box = ticks.getBoundingClientRect();
    return Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
  };
  function release() {
    dragged = null;
    chosen.style.setProperty("--w", "0");
  }
  plots.addEventListener("pointerdown", (event) => {
    if (event.button === 0 && event.target.closest(".field, .ticks")) dragged = share(event);
  });
  window.addEventListener("pointermove", (event) => {
    if (dragged === null) return;
    const now = share(event);
    chosen.style.setProperty("--x", 100 * Math.min(now, dragged) + "%");
    chosen.style.setProperty("--w", 100 * Math.abs(now - dragged) + "%");
    getSelection()?.removeAllRanges();
  });
  window.addEventListener("pointerup", (event) => {
    if (dragged === null) return;
    const from = Math.min(dragged, share(event)), to = Math.max(dragged, share(event)), width = b - a;
    release();
    if ((to - from) * ticks.clientWidth > 5) show(a + from * width, a + to * width);
    else if (told) told.textContent = event.target.closest?.("[data-a]")?.querySelector("title")?.textContent ?? "";
  });
  window.addEventListener("pointercancel", release);
  plots.addEventListener("dblclick", (event) => event.target.closest(".field, .ticks") && acts.all());

  for (const button of legend?.querySelectorAll("button") ?? [])
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") !== "true");
      const alone = new Set([...legend.querySelectorAll("[aria-pressed=true]")].map((one) => one.dataset.o));
      for (const one of plots.querySelectorAll("[data-o]")) one.classList.toggle("dim", alone.size > 0 && !alone.has(one.dataset.o));
    });
  for (const button of document.querySelectorAll(`.goto[data-of="${plots.id}"]`))
    button.addEventListener("click", () => {
      const begin = Number(button.dataset.begin), end = Number(button.dataset.end);
      const around = Math.max(end > begin ? 10 * (end - begin) : length / 200, shortest);
      show(begin - around, end + around);
      plots.focus({ preventScroll: true });
      plots.parentElement.scrollIntoView({ block: "start" });
    });
  window.addEventListener("resize", () => show(a, b));
  show(0, length);
}

// The same as in axis.py.
function stepOf(least) {
  const long = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
  if (least > 86400000) return Math.ceil(least / 86400000) * 86400000;
  if (least > 30000) return 1000 * long.find((seconds) => least <= seconds * 1000);
  for (let power = 1e-6; ; power *= 10)
    for (const digit of [1, 2, 5]) if (least <= digit * power * (1 + 1e-9)) return digit * power;
}
function timeText(time, step) {
  if (step >= 1000 && time >= 120000) {
    const whole = Math.round(time / 1000), two = (number) => String(number).padStart(2, "0");
    const minutes = Math.floor(whole / 60), seconds = two(whole % 60);
    return minutes < 60 ? `${minutes}:${seconds}` : `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${seconds}`;
  }
  const [unit, name] = time >= 1000 || step >= 1000 ? [1000, "s"] : [1, "ms"];
  let digits = 0;
  while (digits < 9 && (step / unit) * 10 ** digits < 0.999) digits++;
  return `${(time / unit).toFixed(digits)} ${name}`;
}
function lengthText(time) {
  for (const [unit, name] of [[3600000, "h"], [60000, "min"], [1000, "s"]])
    if (time >= 2 * unit || (name === "s" && time >= unit)) return `${(time / unit).toFixed(1)} ${name}`;
  return time >= 10 || time === 0 ? `${time.toFixed(0)} ms` : `${Number(time.toFixed(time < 0.01 ? 6 : 2))} ms`;
}
