// The mesh: brokers by cluster and their overlay links; the brokers of a topic and the way of its messages.

import { Chart } from "/static/chart.js";
import { fill, h } from "/static/dom.js";
import { bytes, clock, count, duration, plural, rate } from "/static/format.js";
import { Graph, colorOf } from "/static/graph.js";
import { ask } from "/static/store.js";

const GAP = 46, ROW = 56;
const FEW = 30; // so many brokers can be shown with each link between clusters on its own

export class MeshView {
  constructor(element, store, open) {
    this.store = store;
    this.open = open;
    this.broker = null;
    this.marked = null;
    this.canvas = h("div.canvas", { role: "img", "aria-label": "Brokers by cluster, and overlay links between them" });
    this.legend = h("div.legend");
    this.note = h("div.note");
    this.side = h("aside.side");
    this.summary = h("dl.numbers");
    this.chart = new Chart([{ label: "published /s", color: "accent" }, { label: "between brokers /s", color: "ofm" }, { label: "to clients /s", color: "ok" }], 150);
    this.search = h("input", { type: "search", placeholder: "Broker or cluster", "aria-label": "Search brokers", oninput: () => this.#list() });
    this.table = h("div.rows");
    this.events = h("ol.events");
    this.detail = h("div.detail");
    element.append(h("div.stage", {}, this.canvas, this.legend, this.note), this.side);
    this.side.append(this.detail, this.summary, this.chart.element, h("div.bar", {}, this.search), this.table,
      h("h2.small", {}, "Broker events"), this.events);
    this.graph = new Graph(this.canvas, meshStyle, (target) => {
      if (target?.isNode() && !target.isParent()) this.show(target.id());
      else if (!target) { this.show(null); this.mark(null); }
    });
  }

  recolor() {
    this.graph.recolor();
    this.chart.recolor();
  }

  refresh() {
    this.#draw();
    this.#numbers();
    this.#list();
    this.#happened();
    if (this.broker) this.#detail();
    const { times, totals } = this.store;
    this.chart.set(times, [totals.published, totals.received, totals.delivered]);
  }

  show(name) {
    this.broker = name && (this.store.brokers.has(name) || this.store.away.has(name)) ? name : null;
    this.#detail();
    this.#emphasise();
    this.#list();
  }

  // A topic and, if it is known, the trace of its messages; null: none.
  mark(topic, trace = null) {
    this.marked = topic ? { topic, trace } : null;
    this.#draw();
    this.#emphasise();
  }

  #draw() {
    const brokers = [...this.store.brokers.values()], away = [...this.store.away.values()];
    const elements = layout([...brokers, ...away], this.canvas.clientWidth / Math.max(1, this.canvas.clientHeight));
    const bundles = new Map();
    const busiest = Math.max(1, ...brokers.map((row) => row.published_rate + row.received_rate));
    for (const row of brokers) {
      const share = Math.sqrt((row.published_rate + row.received_rate) / busiest);
      const node = elements.get(row.name);
      node.data.size = 14 + 16 * share;
      node.data.state = row.held_by.length ? "held" : row.name === this.store.seenFrom ? "here" : "well";
    }
    for (const row of away) Object.assign(elements.get(row.name).data, { size: 14, state: "gone" });
    const seen = new Set();
    for (const row of brokers) {
      for (const other of row.links) {
        if (!this.store.brokers.has(other)) continue;
        const id = [row.name, other].sort().join(" ");
        if (seen.has(id)) continue;
        seen.add(id);
        const cluster = this.store.brokers.get(other).cluster, far = cluster !== row.cluster;
        if (far) {
          const pair = [row.cluster, cluster].sort().map((name) => `cluster ${name}`);
          bundles.set(pair.join(" to "), [pair, (bundles.get(pair.join(" to "))?.[1] ?? 0) + 1]);
        }
        elements.set(id, { group: "edges", data: { id: `link ${id}`, source: row.name, target: other, far: far ? 1 : 0 } });
      }
    }
    const thickest = Math.max(1, ...[...bundles.values()].map(([, number]) => number));
    for (const [id, [[source, target], number]] of brokers.length > FEW ? bundles : [])
      elements.set(id, { group: "edges", data: { id, source, target, bundle: 1, width: 1 + 9 * (number / thickest) } });
    for (const hop of this.marked?.trace?.hops ?? []) {
      if (!this.store.brokers.has(hop.source) || !this.store.brokers.has(hop.target)) continue;
      const id = `hop ${hop.source} ${hop.target}`;
      elements.set(id, { group: "edges", data: { id, source: hop.source, target: hop.target, hop: hop.by, depth: hop.depth } });
    }
    this.graph.set([...elements.values()]);
    this.#emphasise();
    fill(this.legend,
      key("here", `this broker (${this.store.seenFrom})`), key("chosen", "chosen"), key("well", "size: messages"), key("held", "publishers held back"), key("gone", "away"), line("near", "in a cluster"), line("far", "between clusters"));
  }

  #emphasise() {
    const { cy } = this.graph;
    const row = this.marked && this.store.topics.get(this.marked.topic);
    cy.batch(() => {
      cy.elements().removeClass("faint chosen publishes subscribes away own");
      const many = this.store.brokers.size > FEW;
      if (many) cy.edges("[far = 1]").addClass("away");
      if (row || this.broker) cy.edges("[bundle]").addClass("away");
      if (row) {
        const part = new Set([...row.publishers, ...row.brokers, ...(this.marked.trace?.hops ?? []).flatMap((hop) => [hop.source, hop.target])]);
        cy.nodes(":childless").forEach((node) => { if (!part.has(node.id())) node.addClass("faint"); });
        cy.edges("[^hop]").addClass("faint");
        row.brokers.forEach((name) => cy.getElementById(name).addClass("subscribes"));
        row.publishers.forEach((name) => cy.getElementById(name).addClass("publishes"));
      }
      if (this.broker) {
        const node = cy.getElementById(this.broker).addClass("chosen");
        if (!row) {
          cy.edges().not(node.connectedEdges().removeClass("away").addClass("own")).addClass("faint");
          cy.nodes(":childless").not(node.closedNeighborhood()).addClass("faint");
        }
      }
    });
    fill(this.note, row ? [
      h("b", {}, row.topic), ` ${plural(row.publishers.length, "publishing broker")}, ${plural(row.brokers.length, "broker")} with subscribers `,
      h("button.small", { onclick: () => this.mark(null) }, "Clear"),
    ] : []);
    this.note.hidden = !row;
  }

  #numbers() {
    const rows = [...this.store.brokers.values()];
    const sum = (name) => rows.reduce((total, row) => total + row[name], 0);
    const modes = { constructed: 0, alm: 0 };
    for (const row of this.store.topics.values()) modes[row.mode] = (modes[row.mode] ?? 0) + 1;
    const facts = [
      [count(rows.length), plural(rows.length, "broker").replace(/^\S+ /, "")],
      [count(new Set(rows.map((row) => row.cluster)).size), "clusters"],
      [count(sum("clients")), "clients"], [count(this.store.topicsTotal), "topics"],
      [count(modes.constructed), "by OpenFlow"], [`${rate(sum("published_rate"))} /s`, "published"],
      [`${rate(sum("delivered_rate"))} /s`, "to clients"], [count(sum("dropped")), "dropped"],
    ];
    fill(this.summary, facts.map(([value, name]) => h("div", {}, h("dd", {}, value), h("dt", {}, name))));
  }

  #happened() {
    const shown = this.store.events.slice(0, 50);
    fill(this.events, shown.map((event) => h("li", {},
      h("time", { title: new Date(event.at * 1000).toLocaleString() }, clock(event.at)),
      h("b", { class: event.what }, event.what), h("span", {}, event.broker))));
    if (!shown.length) fill(this.events, h("li.hint", {}, "No changes since the brokers started."));
  }

  #list() {
    const wanted = this.search.value.toLowerCase();
    const gone = [...this.store.away.values()].filter((row) => `${row.name} ${row.cluster}`.toLowerCase().includes(wanted));
    const rows = [...this.store.brokers.values()]
      .filter((row) => `${row.name} ${row.cluster}`.toLowerCase().includes(wanted))
      .sort((a, b) => b.held_by.length - a.held_by.length || b.published_rate - a.published_rate || (a.name < b.name ? -1 : 1));
    fill(this.table, gone.map((row) => h("button.row.gone", { class: row.name === this.broker ? "chosen" : "", onclick: () => this.show(row.name) },
      h("span.dot", { class: "gone" }),
      h("span.main", {}, row.name, h("small", {}, row.cluster)),
      h("span.value", {}, "away", h("small", {}, duration(this.store.at - row.since))),
    )), rows.slice(0, 200).map((row) => h("button.row", { class: row.name === this.broker ? "chosen" : "", onclick: () => this.show(row.name) },
      h("span.dot", { class: row.held_by.length || row.upstream === "away" ? "warn" : "ok" }),
      h("span.main", {}, row.name, h("small", {}, row.cluster)),
      h("span.value", {}, `${rate(row.published_rate)} /s`, h("small", {}, plural(row.clients, "client"))),
    )));
  }

  #detail() {
    const row = this.broker && this.store.brokers.get(this.broker);
    const away = this.broker && this.store.away.get(this.broker);
    if (away && !row) return void this.#explainAway(away);
    if (!row) return void fill(this.detail);
    const topics = [...this.store.topics.values()].filter((t) => t.publishers.includes(row.name)).sort((a, b) => b.rate - a.rate).slice(0, 8);
    const web = row.web[0];
    fill(this.detail,
      h("div.head", {}, h("h2", {}, row.name), h("button.icon", { "aria-label": "Close", onclick: () => this.show(null) }, "×")),
      row.held_by.length ? h("p.warning", {}, `Publishers are held back by: ${row.held_by.join(", ")}`) : null,
      facts([
        ["Cluster", row.cluster], ["Address", row.address], ["Up", duration(row.uptime)], ["Version", row.version],
        ["Clients", `${count(row.clients)} of ${plural(row.sessions, "session")}`], ["Subscriptions", count(row.subscriptions)],
        ["Published", `${rate(row.published_rate)} /s`], ["From brokers", `${rate(row.received_rate)} /s`], ["To clients", `${rate(row.delivered_rate)} /s`],
        ["Kept for slow", bytes(row.queued_bytes)], ["Dropped", count(row.dropped)], ["OpenFlow", row.ofm ?? "no"],
        ["Upstream", row.upstream ?? null],
        ["Overlay links", others(row.links, this.store.brokers).join(", ") || "none"],
        ["Kept for lost brokers", row.missed_messages ? `${plural(row.missed_messages, "message")}, ${bytes(row.missed_bytes)}` : "nothing"],
        ["Lost brokers: dropped", row.missed_dropped ? count(row.missed_dropped) : null],
      ]),
      row.upstream === "away" ? h("p.warning", {}, "Its upstream is away: messages for it wait.") : null,
      row.counts ? null : h("p.hint", {}, "This broker has no Web port and no monitoring: its topics have no rates."),
      row.traffic?.length ? [h("h3", { title: "Over TCP connections that this broker has made" }, "Sends to"),
        h("div.rows", {}, [...row.traffic].sort((a, b) => b[1] - a[1]).slice(0, 12).map(([to, sent, away]) => h("button.row", { onclick: () => this.show(to) },
          h("span.main", {}, to), h("span.value", { title: "bytes a second; there and back" }, `${bytes(sent)}/s`, h("small", {}, away === null ? "" : `${(1000 * away).toFixed(1)} ms`)))))] : null,
      topics.length ? h("h3", {}, "Publishes most to") : null,
      h("div.rows", {}, topics.map((topic) => h("button.row", { onclick: () => this.open(topic.topic) }, h("span.main", {}, topic.topic), h("span.value", {}, `${rate(topic.rate)} /s`)))),
      ["operator", "administrator"].includes(this.store.role) ? this.#drain(row.name) : null,
      web && row.name !== this.store.seenFrom ? h("p", {}, h("a", { href: `${location.protocol}//${web}/`, rel: "noreferrer" }, "The page of this broker")) : null,
    );
  }

  // Orders to send clients and sessions elsewhere, and to end that; one click asks whether it is meant.
  #drain(name) {
    const path = `/v1/drain?broker=${encodeURIComponent(name)}`;
    this.drained ??= {};
    const order = (body) => ask(path, "POST", body).then((found) => { this.drained[name] = found; this.#detail(); }, (error) => { this.drained[name] = { fault: error.message }; this.#detail(); });
    const now = this.drained[name], running = now?.stage && now.stage !== "serving";
    if (running && !["leaving", "left"].includes(now.stage) && !this.looking) this.looking = setTimeout(() => { this.looking = null; ask(path).then((found) => { this.drained[name] = found; this.#detail(); }, () => {}); }, 1000);
    return h("div.bar", {},
      running ? h("button.small", { onclick: () => order({ cancel: true }) }, "End the drain")
        : now?.sure ? [h("button.small", { onclick: () => order({}) }, `Drain ${name}: its clients go elsewhere, then it ends`), h("button.small", { onclick: () => { delete this.drained[name]; this.#detail(); } }, "No")]
          : h("button.small", { onclick: () => { this.drained[name] = { sure: true }; this.#detail(); } }, "Drain…"),
      running ? h("span.hint", { role: "status" }, `${now.stage}: ${plural(now.clients, "client")}, ${plural(now.sessions, "session")} left`) : null,
      now?.fault ? h("span.bad", { role: "alert" }, now.fault) : null);
  }

  #explainAway(row) {
    const fault = h("p.bad", { role: "alert" });
    const forget = () => ask(`/v1/brokers/${encodeURIComponent(row.name)}`, "DELETE")
      .then(() => this.show(null), (error) => fill(fault, error.message));
    fill(this.detail,
      h("div.head", {}, h("h2", {}, row.name), h("button.icon", { "aria-label": "Close", onclick: () => this.show(null) }, "×")),
      h("p.warning", {}, `Away since ${new Date(row.since * 1000).toLocaleString()}: other brokers take it for dead.`),
      facts([["Cluster", row.cluster], ["Address", row.address], ["Away for", duration(this.store.at - row.since)]]),
      h("p", {}, h("button.small", { onclick: forget }, "Forget it")), fault,
    );
  }
}

const TERMS = {
  Cluster: "The site: messages cross from one to another once", Address: "Where other brokers reach it", Clients: "Connected, of those whose sessions are kept",
  "From brokers": "Messages that other brokers sent it", "Kept for slow": "Waiting for clients that read too slowly", Dropped: "Messages given up for clients that were away or too slow",
  OpenFlow: "Its address in the network of switches", "Overlay links": "Brokers next to it in the Skip Graph", "Kept for lost brokers": "Publications for brokers that are considered dead, at most 30 s",
  Mode: "ALM: from broker to broker. OFM: by the switches, along a tree", Tree: "The multicast address of the topic's tree", Latency: "Until all members had confirmed a publication of QoS 1 or 2",
  Priority: "Of the topic: priority.topics", Upstream: "The MQTT broker that this one joins to the mesh",
};

export function facts(pairs) {
  return h("dl.facts", {}, pairs.filter(([, value]) => value !== null).flatMap(([name, value]) => [h("dt", { title: TERMS[name] ?? null }, name), h("dd", {}, value)]));
}

// Of links those to brokers: OFGate is in the mesh, and none.
const others = (links, brokers) => links.filter((name) => brokers.has(name));

const key = (state, text) => h("span", {}, h("i.dot", { class: state }), text);
const line = (kind, text) => h("span", {}, h("i.line", { class: kind }), text);

// Clusters as blocks in rows as wide as the sheet is; the brokers of each in a block of their own.
function layout(brokers, aspect) {
  const clusters = new Map();
  for (const row of [...brokers].sort((a, b) => (a.name < b.name ? -1 : 1))) {
    if (!clusters.has(row.cluster)) clusters.set(row.cluster, []);
    clusters.get(row.cluster).push(row);
  }
  const names = [...clusters.keys()].sort();
  const blocks = names.map((name, index) => {
    const members = clusters.get(name);
    const columns = Math.ceil(Math.sqrt(members.length * 1.4));
    return { name, index, members, columns, width: Math.max(columns * ROW, 110), height: Math.ceil(members.length / columns) * ROW };
  });
  const widest = Math.max(1, ...blocks.map((block) => block.width + GAP * 1.6)), highest = Math.max(1, ...blocks.map((block) => block.height + GAP * 2));
  const scale = (columns) => Math.min((aspect || 1.4) / (columns * widest), 1 / (Math.ceil(blocks.length / columns) * highest));
  let best = 1;
  for (let columns = 2; columns <= blocks.length; columns++) if (scale(columns) > scale(best) * 1.001) best = columns;
  const limit = widest * best;
  const elements = new Map();
  let x = 0, y = 0, tallest = 0;
  for (const block of blocks) {
    if (x && x + block.width > limit) { x = 0; y += tallest + GAP * 2; tallest = 0; }
    const id = `cluster ${block.name}`;
    elements.set(id, { group: "nodes", data: { id, label: block.name || "no cluster", color: colorOf(block.index) } });
    block.members.forEach((row, i) => {
      const across = i % block.columns, down = Math.floor(i / block.columns);
      const shift = down % 2 ? ROW * 0.25 : 0; // so that links of a row do not lie on each other
      elements.set(row.name, {
        group: "nodes", data: { id: row.name, parent: id, label: row.name, color: colorOf(block.index) },
        position: { x: x + across * ROW + shift, y: y + down * ROW + (across % 2 ? ROW * 0.22 : 0) },
      });
    });
    x += block.width + GAP * 1.6;
    tallest = Math.max(tallest, block.height);
  }
  return elements;
}

const meshStyle = (color) => [
  { selector: "node:childless", style: { width: "data(size)", height: "data(size)", "background-color": "data(color)", label: "data(label)", color: color.text, "font-size": color.caption, "text-valign": "bottom", "text-margin-y": 3, "min-zoomed-font-size": 7, "border-width": 0, "overlay-opacity": 0 } },
  { selector: "node[state = 'here']", style: { "border-width": 5, "border-style": "double", "border-color": color.text } },
  { selector: "node[state = 'gone']", style: { "background-color": color.line, "border-width": 1, "border-style": "dashed", "border-color": color.dim, color: color.dim } },
  { selector: "node[state = 'held']", style: { "shape": "diamond", "background-color": color.warn, "border-width": 2, "border-color": color.text } },
  { selector: "node:parent", style: { label: "data(label)", shape: "round-rectangle", "background-color": "data(color)", "background-opacity": 0.07, "border-color": "data(color)", "border-opacity": 0.45, "border-width": 1, padding: 16, color: color.dim, "font-size": 14, "font-weight": 600, "min-zoomed-font-size": 6, "text-valign": "top", "text-margin-y": -3, events: "no" } },
  { selector: "edge", style: { width: 1, "line-color": color.dim, opacity: 0.35, "curve-style": "straight", events: "no" } },
  { selector: "edge[far = 1]", style: { "line-color": color.accent, opacity: 0.28 } },
  { selector: "edge[hop]", style: { width: 2.5, opacity: 0.95, "curve-style": "bezier", "line-color": color.accent, "target-arrow-color": color.accent, "target-arrow-shape": "triangle", "z-index": 9 } },
  { selector: "edge[hop = 'ofm']", style: { "line-color": color.ofm, "target-arrow-color": color.ofm, "line-style": "dashed" } },
  { selector: "edge[bundle]", style: { width: "data(width)", "line-color": color.accent, opacity: 0.28, "curve-style": "bezier" } },
  { selector: ".away", style: { display: "none" } },
  { selector: ".faint", style: { opacity: 0.13 } },
  { selector: "edge.own", style: { width: 2, opacity: 0.85, "line-color": color.accent } },
  { selector: "node.publishes", style: { shape: "diamond", "border-width": 3, "border-color": color.accent } },
  { selector: "node.subscribes", style: { "border-width": 3, "border-color": color.ok } },
  { selector: "node.publishes.subscribes", style: { "border-color": color.accent } },
  { selector: "node.chosen", style: { "underlay-color": color.accent, "underlay-opacity": 0.45, "underlay-padding": 9, "underlay-shape": "ellipse", "font-weight": 700 } },
];
