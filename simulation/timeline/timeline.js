"use strict";
// Steps and shapes of a timeline. page.js zooms the lanes; here a step is chosen, and the list follows the lanes.
{
  const plots = document.querySelector(".plots"), box = document.querySelector(".steps"), told = document.querySelector(".told");
  const rows = [...box.querySelectorAll("tbody tr")], ground = plots.querySelector(".ground");
  const times = rows.map((row) => 1000 * parseFloat(row.cells[0].textContent.replaceAll(",", "")));
  const tip = document.body.appendChild(Object.assign(document.createElement("div"), { className: "tip", hidden: true }));
  const cursor = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  const length = Number(plots.dataset.length);
  const wrongs = [...document.querySelectorAll("article[id]")];
  let a = 0, b = length, chosen = -1, wrong = -1, quiet = false;

  for (const [name, value] of Object.entries({ class: "cursor", height: "100%", x: "-1%" })) cursor.setAttribute(name, value);
  ground.append(cursor);

  function windowed([from, to]) {
    [a, b] = [from, to];
    place();
    const whole = b - a >= length;
    let first = -1;
    times.forEach((time, number) => {
      const within = time >= a && time <= b;
      rows[number].classList.toggle("out", !within && !whole);
      if (within && first < 0) first = number;
    });
    if (!quiet && first >= 0) scrollTo(chosen >= 0 && times[chosen] >= a && times[chosen] <= b ? chosen : first);
  }
  function place() {
    cursor.setAttribute("x", chosen < 0 ? "-1%" : `${(100 * (times[chosen] - a)) / (b - a)}%`);
  }
  function scrollTo(number) {
    const row = rows[number], top = row.offsetTop - box.firstChild.tHead.offsetHeight;
    if (row.offsetTop < box.scrollTop + row.offsetHeight || row.offsetTop + row.offsetHeight > box.scrollTop + box.clientHeight)
      box.scrollTop = top - box.clientHeight / 4;
  }
  const words = (row) => `${row.cells[0].textContent} s: ${row.cells[1].innerText.replaceAll("\n", "; ")}`;

  function choose(number) {
    if (number < 0 || number >= rows.length) return;
    for (const one of document.querySelectorAll(".on")) one.classList.remove("on");
    chosen = number;
    const row = rows[number], time = times[number];
    row.classList.add("on");
    for (const shape of plots.querySelectorAll(`[data-s="${row.id}"]`)) shape.classList.add("on");
    told.textContent = words(row);
    quiet = true;
    if (time < a || time > b) show(time - (b - a) / 2, time + (b - a) / 2);
    quiet = false;
    place();
    scrollTo(number);
  }
  const show = (from, to) => plots.dispatchEvent(new CustomEvent("show", { detail: [from, to] }));
  const chooseId = (id) => choose(rows.findIndex((row) => row.id === id));

  function showWrong(number) {
    if (!wrongs.length) return;
    wrong = (number + wrongs.length) % wrongs.length;
    wrongs[wrong].querySelector(".goto").click();
    const link = wrongs[wrong].querySelector("a");
    if (link) chooseId(link.hash.slice(1));
    const [kind, time] = [".bad-text", ".at-time"].map((one) => wrongs[wrong].querySelector(one).textContent);
    told.textContent = `${time}: ${kind}. ${wrongs[wrong].querySelector("p").textContent}`;
  }

  plots.addEventListener("shown", (event) => windowed(event.detail));
  plots.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const first = chosen < 0 ? times.findIndex((time) => time >= a) - 1 : chosen;
    if (event.key === "n") choose(first + 1);
    else if (event.key === "p") choose(chosen - 1);
    else if (event.key === "v") showWrong(wrong + 1);
  });
  box.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
    if (!step) return;
    event.preventDefault();
    choose(Math.min(Math.max(chosen + step, 0), rows.length - 1));
  });
  box.addEventListener("click", (event) => {
    const row = event.target.closest("tbody tr");
    if (row) choose(rows.indexOf(row));
  });
  plots.addEventListener("click", (event) => {
    const shape = event.target.closest("[data-s], [data-v]");
    if (!shape) return;
    if (shape.dataset.s) chooseId(shape.dataset.s);
    else showWrong(wrongs.findIndex((one) => one.id === shape.dataset.v));
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("article a");
    if (!link) return;
    event.preventDefault();
    chooseId(link.hash.slice(1));
    plots.parentElement.scrollIntoView({ block: "start" });
  });

  plots.addEventListener("pointermove", (event) => {
    const shape = event.target.closest("[data-s], [data-v]");
    tip.hidden = !shape || event.buttons > 0;
    if (tip.hidden) return;
    const row = shape.dataset.s ? document.getElementById(shape.dataset.s) : null;
    tip.textContent = row ? "" : document.getElementById(shape.dataset.v)?.querySelector("p").textContent ?? "a violation";
    if (row) {
      const [time, what] = row.cells, why = what.querySelector("i");
      tip.append(`${time.textContent} s: ${[...what.childNodes].filter((one) => one !== why).map((one) => one.textContent).join(" ")}`);
      if (why) tip.append(why.cloneNode(true));
    }
    tip.style.left = 0; // as wide as it likes to be
    const wide = tip.offsetWidth, high = tip.offsetHeight;
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - wide - 8))}px`;
    tip.style.top = `${event.clientY + 18 + high > innerHeight ? event.clientY - high - 10 : event.clientY + 18}px`;
  });
  plots.addEventListener("pointerleave", () => (tip.hidden = true));
}
