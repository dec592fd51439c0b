// Lines of a side: from a queue to the member that its lock names, and the links between hosts.

import { colourClass, h, keep, linkOf, setAttr } from "./parts.js";

function place(node, box) {
  const at = node.getBoundingClientRect();
  return { left: at.left - box.left, right: at.right - box.left, top: at.top - box.top, bottom: at.bottom - box.top, middle: at.top - box.top + at.height / 2 };
}

function curve(x1, y1, x2, y2) {
  const bend = Math.max(18, (x2 - x1) * 0.5);
  return `M${x1.toFixed(1)} ${y1.toFixed(1)}C${(x1 + bend).toFixed(1)} ${y1.toFixed(1)} ${(x2 - bend).toFixed(1)} ${y2.toFixed(1)} ${x2.toFixed(1)} ${y2.toFixed(1)}`;
}

/** Measures only when something moved, or another member owns a queue: to measure makes the browser lay out. */
export function drawWires(side, view) {
  const owned = view.side.queues.map((one) => (one.lock ? `${one.id}>${one.lock.owner}` : ""));
  const broken = view.side.links.map((one) => `${one.a}-${one.b}:${one.lasting.map((fault) => fault.fault)}`);
  const held = view.side.members.map((one) => `${one.name}:${one.queues.map((queue) => queue.id)}`);
  const states = view.side.hosts.map((one) => one.state);
  const faded = view.followed ? JSON.stringify(view.followed) : "";
  const look = [owned, broken, held, states, faded, side.rowWidth].join(";");
  if (side.wires === look) return;
  side.wires = look;
  const box = side.stage.getBoundingClientRect();
  const { parts } = side;
  setAttr(parts.svg, "viewBox", `0 0 ${box.width.toFixed(0)} ${box.height.toFixed(0)}`);
  const lines = getComputedStyle(side.stage).getPropertyValue("--stacked").trim() ? [] : linesOf(side, view, box);
  keep(parts.svg, lines, (one) => one.key, () => h("path"), (path, one) => {
    setAttr(path, "d", one.d);
    setAttr(path, "class", one.class);
  });
}

function linesOf(side, view, box) {
  const { parts } = side, lines = [], cards = new Map();
  for (const column of [parts.senders, parts.brokers, parts.members])
    for (const card of column.children) cards.set(card.dataset.host, card);
  for (const broker of parts.brokers.children) {
    const head = place(broker.head, box), edge = place(broker, box);
    for (const sender of parts.senders.children) {
      const at = place(sender, box);
      const above = at.right > edge.left, x = (at.left + at.right) / 2;
      lines.push({ key: `${sender.dataset.host}-${broker.dataset.host}`, class: linkClass(view, sender.dataset.host, broker.dataset.host),
        d: above ? `M${x.toFixed(1)} ${at.bottom.toFixed(1)}V${edge.top.toFixed(1)}` : curve(at.right, at.middle, edge.left, head.middle) });
    }
    for (const row of broker.queues.children) {
      const queue = view.queues.get(row.dataset.queue), card = cards.get(queue?.lock?.owner);
      if (!card) continue;
      const at = place(row.lock, box), held = [...card.held.children].find((one) => one.isConnected && one.queueId === queue.id);
      const to = place(held ?? card.head, box), end = place(card, box);
      const faded = row.classList.contains("faded") ? " faded" : "";
      lines.push({ key: `${queue.id}>`, class: `own ${colourClass(view.owners.get(queue.lock.owner))}${faded}`,
        d: curve(edge.right, at.middle, end.left, to.middle) });
    }
  }
  for (const card of parts.members.children)
    for (const plug of card.plugs.children) {
      const broker = cards.get(plug.broker);
      if (!broker || !plug.dataset.fault) continue;
      const at = place(plug, box), head = place(broker.head, box), edge = place(broker, box), end = place(card, box);
      lines.push({ key: `${card.dataset.host}-${plug.broker}`, class: linkClass(view, card.dataset.host, plug.broker),
        d: curve(edge.right, head.middle, end.left, at.middle) });
    }
  return lines;
}

function linkClass(view, a, b) {
  const link = linkOf(view.side, a, b);
  return link ? `link broken ${link.lasting[0]?.fault ?? ""}` : "link";
}
