() => {
  // Texts, one a fault. Colours of SVG shapes are not looked at: their owners are texts beside them too.
  const faults = [];
  const shown = (e) => e.getClientRects().length > 0 && getComputedStyle(e).visibility !== "hidden";
  const where = (e) => e.outerHTML.slice(0, 120);
  const named = (e) => (e.getAttribute("aria-label") || e.labels?.[0]?.textContent || e.textContent || e.title || "").trim();
  for (const e of document.querySelectorAll("a, button, summary, input:not([type=hidden]), select, textarea, svg[role=img], meter"))
    if (shown(e) && !named(e)) faults.push("no name: " + where(e));
  for (const e of document.querySelectorAll("table")) {
    if (!e.caption && !e.getAttribute("aria-labelledby")) faults.push("no caption: " + where(e));
    if (!e.querySelector("th[scope]") && e.rows.length > 1) faults.push("no header: " + where(e));
  }
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  for (const id of new Set(ids)) if (ids.filter((one) => one === id).length > 1) faults.push("id twice: " + id);
  if (document.querySelectorAll("h1").length !== 1) faults.push("not one h1");
  if (!document.documentElement.lang) faults.push("no language");
  if (!document.title) faults.push("no title");
  if (document.documentElement.scrollWidth > innerWidth + 1)
    faults.push(`wider than the window: ${document.documentElement.scrollWidth} > ${innerWidth}`);
  // A colour is [red, green, blue, alpha]. What is seen of it: over the backgrounds, each part as opaque as it says.
  const parse = (text) => { const [r = 0, g = 0, b = 0, alpha = 1] = (text.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number); return [r, g, b, alpha]; };
  const over = (top, below) => { const alpha = top[3] + below[3] * (1 - top[3]);
    return [0, 1, 2].map((i) => alpha && (top[i] * top[3] + below[i] * below[3] * (1 - top[3])) / alpha).concat(alpha); };
  const seen = (e, colour) => { for (; e; e = e.parentElement) { const style = getComputedStyle(e); colour = over(colour, parse(style.backgroundColor));
      colour[3] *= Number(style.opacity); }
    return over(colour, matchMedia("(prefers-color-scheme: dark)").matches ? [0, 0, 0, 1] : [255, 255, 255, 1]); };
  const light = ([r, g, b]) => { const [x, y, z] = [r, g, b].map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z; };
  const contrast = (e, text) => { const [a, b] = [light(seen(e, parse(text))), light(seen(e, [0, 0, 0, 0]))];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); };
  for (const e of document.querySelectorAll("input[placeholder]")) {
    const ratio = contrast(e, getComputedStyle(e, "::placeholder").color);
    if (shown(e) && ratio < 4.5) faults.push(`contrast of placeholder ${ratio.toFixed(2)}: ${where(e)}`);
  }
  for (const e of document.querySelectorAll("body *")) {
    if (e.closest("svg") || !shown(e) || ![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
    const style = getComputedStyle(e), ratio = contrast(e, style.color), size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5) && !e.disabled) faults.push(`contrast ${ratio.toFixed(2)}: ${where(e)}`);
  }
  return faults;
}
