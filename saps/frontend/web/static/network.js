// The OpenFlow network: switches, links with their load, where brokers are attached, trees, and budgets.

import { fill, h } from "/static/dom.js";
import { bytes, count, dpid, plural, rate } from "/static/format.js";
import { Graph } from "/static/graph.js";
import { ask } from "/static/store.js";
import { badge } from "/static/topics.js";

export class NetworkView {
  constructor(element, store, open) {
    this.store = store;
    this.open = open;
    this.tree = null;
    this.switch = null;
    this.decoded = null; // what the address in the search field means
    this.empty = h("div.empty");
    this.canvas = h("div.canvas", { role: "img", "aria-label": "Switches, links, and brokers" });
    this.note = h("div.note", { hidden: true });
    this.legend = h("div.legend", {}, h("span", {}, h("i.square"), "switch: number, flow entries in use"), h("span", {}, h("i.dot.well"), "broker"), h("span", {}, h("i.line.far"), "link, wide with its load"));
    this.stage = h("div.stage", {}, this.canvas, this.legend, this.note);
    this.search = h("input", { type: "search", placeholder: "Topic of a tree, or ff15: address", "aria-label": "Search trees, or decode an address", oninput: () => this.#searched() });
    this.trees = h("div.rows");
    this.budgets = h("div.budgets", { tabindex: "0", role: "region", "aria-label": "Switch budgets" });
    this.fault = h("p.warning", { hidden: true });
    this.count = h("h2.small");
    this.side = h("aside.side", {}, this.fault, h("h2.small", {}, "Switch budgets"), this.budgets, this.count, h("div.bar", {}, this.search), this.trees);
    element.append(this.empty, this.stage, this.side);
    this.graph = new Graph(this.canvas, networkStyle, (target) => this.#chosen(target));
  }

  recolor() {
    this.graph.recolor();
  }

  refresh() {
    const { network } = this.store;
    const known = network.configured;
    this.empty.hidden = known;
    this.stage.hidden = this.side.hidden = !known;
    if (!this.store.at) {
      fill(this.empty, h("p", {}, "The broker has not answered yet."));
      return;
    }
    if (!known) {
      fill(this.empty, h("h2", {}, "No controller"), h("p", {}, "This broker knows no OpenFlow controller. Set ", h("code", {}, "web.controller"), " to the address of its northbound, such as http://127.0.0.1:8181, to see the network here. Without one all topics go by ALM."));
      return;
    }
    this.fault.hidden = !network.fault;
    fill(this.fault, network.fault ? `The controller cannot be asked: ${network.fault}` : "");
    this.#draw();
    this.#lists();
  }

  #chosen(target) {
    this.switch = target?.data("kind") === "switch" ? target.id() : null;
    if (!target) this.tree = null;
    this.#draw();
    this.#lists();
  }

  async #searched() {
    const wanted = this.search.value.trim();
    this.decoded = null;
    if (/^\[?ff15:/i.test(wanted)) {
      const found = await ask(`/v1/addresses/${encodeURIComponent(wanted)}`).catch((error) => ({ fault: error.message }));
      if (this.search.value.trim() !== wanted) return;
      this.decoded = found;
    }
    this.#draw();
    this.#lists();
  }

  #draw() {
    const { network, brokers } = this.store;
    const names = new Map([...brokers.values()].filter((row) => row.ofm).map((row) => [row.ofm, row.name]));
    const way = this.decoded?.links && this.decoded;
    const tree = way ? { switches: [...way.links.flatMap((link) => [link.a, link.b]), ...way.receivers.map((row) => row.dpid)], brokers: way.receivers.map((row) => row.address) } : this.tree && network.trees.find((row) => row.topic === this.tree);
    const inTree = new Set(tree?.switches ?? []), members = new Set(tree?.brokers ?? []);
    const lines = way && new Set(way.links.map(line));
    const places = arrange(network);
    const heaviest = Math.max(1, ...network.links.map((link) => link.load ?? 0));
    const elements = [];
    for (const row of network.switches) {
      const share = row.entries_budget ? row.entries / row.entries_budget : 0;
      elements.push({ group: "nodes", position: places.get(row.dpid), data: { id: row.dpid, kind: "switch", label: `${dpid(row.dpid)}\n${Math.round(100 * share)} %`, share, state: row.connected ? (share > 0.9 ? "full" : share > 0.7 ? "filling" : "well") : "gone", faint: tree && !inTree.has(row.dpid) ? 1 : 0 } });
    }
    const ids = new Set(network.switches.map((row) => row.dpid));
    for (const link of network.links) {
      if (!ids.has(link.a) || !ids.has(link.b)) continue;
      const part = lines ? lines.has(line(link)) : inTree.has(link.a) && inTree.has(link.b);
      elements.push({ group: "edges", data: { id: line(link), source: link.a, target: link.b, width: 1 + 7 * Math.sqrt((link.load ?? 0) / heaviest), label: link.load ? `${bytes(link.load)}/s` : "", tree: part ? 1 : 0, faint: tree && !part ? 1 : 0 } });
    }
    for (const place of network.places) {
      if (!place.dpid || !ids.has(place.dpid)) continue;
      const id = `broker ${place.address}`;
      const faint = tree && !members.has(place.address) ? 1 : 0;
      elements.push({ group: "nodes", position: places.get(place.address), data: { id, kind: "broker", label: names.get(place.address) ?? place.address, faint } });
      elements.push({ group: "edges", data: { id: `at ${place.address}`, source: place.dpid, target: id, width: 1, label: "", tree: tree && !faint ? 1 : 0, faint, access: 1 } });
    }
    this.graph.set(elements);
    this.note.hidden = !tree;
    if (way) fill(this.note, h("b", {}, way.address), ` set ${way.set}, plane ${way.plane}${way.working ? "" : " (not in use)"}, ${plural(way.receivers.length, "receiver")}, ${plural(way.links.length, "link")} between them`);
    else if (tree) fill(this.note, h("b", {}, tree.topic), ` ${tree.address ?? ""} ${plural(tree.brokers.length, "broker")}, ${plural(tree.switches.length, "switch").replace("switchs", "switches")} `, h("button.small", { onclick: () => this.open(tree.topic) }, "Topic"), " ", h("button.small", { onclick: () => { this.tree = null; this.#draw(); this.#lists(); } }, "Clear"));
  }

  #lists() {
    const { network } = this.store;
    const rows = [...network.switches].sort((a, b) => used(b) - used(a));
    fill(this.budgets, rows.map((row) => h("div.budget", { class: row.dpid === this.switch ? "chosen" : "" },
      h("span.main", {}, h("code", {}, dpid(row.dpid)), row.connected ? null : h("small.bad", { title: "not connected" }, " gone")),
      meter("entries", row.entries, row.entries_budget), meter("buckets", row.buckets, row.buckets_budget))));
    if (this.decoded) {
      const { fault, receivers = [] } = this.decoded;
      fill(this.count, fault ?? plural(receivers.length, "receiver"));
      fill(this.trees, receivers.map((row) => h("div.row", {}, h("span.main", {}, row.broker ?? (row.address ? "not in the mesh" : "nobody"), h("small", {}, row.address ?? "")), h("span.value", {}, `bit ${row.position}`, h("small", {}, row.dpid ? `${dpid(row.dpid)} port ${row.port}` : "not reached")))));
      return;
    }
    const wanted = this.search.value.toLowerCase();
    const trees = network.trees.filter((row) => row.topic.toLowerCase().includes(wanted) && (!this.switch || row.switches.includes(this.switch)))
      .sort((a, b) => (b.rate ?? -1) - (a.rate ?? -1) || (a.topic < b.topic ? -1 : 1));
    fill(this.count, this.switch ? `${plural(trees.length, "tree")} through ${dpid(this.switch)}` : plural(trees.length, "tree"));
    fill(this.trees, trees.slice(0, 300).map((row) => h("button.row", { class: row.topic === this.tree ? "chosen" : "", onclick: () => { this.tree = row.topic === this.tree ? null : row.topic; this.#draw(); this.#lists(); } },
      h("span.main", {}, row.topic, h("small", {}, row.reason ?? `${row.address ?? "no address"}, ${plural(row.brokers.length, "broker")}`)),
      h("span.value", {}, badge(row.status), h("small", {}, row.rate === null ? "" : `${rate(row.rate)} packets/s`)))));
  }
}

const line = (link) => `${link.a}:${link.a_port} ${link.b}:${link.b_port}`;
const used = (row) => (row.entries_budget ? row.entries / row.entries_budget : 0);

function meter(name, value, budget) {
  const share = budget ? Math.min(1, value / budget) : 0;
  return h("span.meter", { role: "meter", "aria-valuenow": value, "aria-valuemax": budget, "aria-label": name, title: `${count(value)} of ${count(budget)} ${name}` },
    h("i", { class: share > 0.9 ? "bad" : share > 0.7 ? "warn" : "ok", style: { width: `${Math.max(1, 100 * share)}%` } }), h("b", {}, `${count(value)}/${count(budget)} ${name}`));
}

// Switches by how far they are from the edge: those with brokers outside, the others within; brokers around theirs.
function arrange(network) {
  const at = new Map();
  for (const place of network.places) if (place.dpid) at.set(place.dpid, [...(at.get(place.dpid) ?? []), place.address]);
  const edge = network.switches.filter((row) => at.has(row.dpid)).map((row) => row.dpid).sort();
  const core = network.switches.filter((row) => !at.has(row.dpid)).map((row) => row.dpid).sort();
  const found = new Map();
  const most = Math.max(1, ...edge.map((id) => at.get(id).length));
  const radius = Math.max(150, edge.length * (34 + 6 * Math.min(most, 12)) / Math.PI / 1.2);
  const around = (ids, r, turn) => ids.forEach((id, i) => {
    const angle = turn + (2 * Math.PI * i) / ids.length;
    found.set(id, { x: 1.25 * r * Math.cos(angle), y: r * Math.sin(angle) });
  });
  if (core.length) around(edge, radius, -Math.PI / 2);
  else around(edge, edge.length === 1 ? 0 : radius, -Math.PI / 2);
  around(core, core.length === 1 ? 0 : radius * 0.4, 0);
  for (const id of edge) {
    const middle = found.get(id), addresses = at.get(id).sort();
    const outwards = Math.atan2(middle.y, middle.x || 1e-6);
    addresses.forEach((address, i) => {
      const perRing = 8, ring = Math.floor(i / perRing), inRing = Math.min(perRing, addresses.length - ring * perRing);
      const angle = outwards + ((i % perRing) - (inRing - 1) / 2) * 0.34;
      const r = 72 + 34 * ring;
      found.set(address, { x: middle.x + r * Math.cos(angle), y: middle.y + r * Math.sin(angle) });
    });
  }
  return found;
}

const networkStyle = (color) => [
  { selector: "node[kind = 'switch']", style: { shape: "round-rectangle", width: 46, height: 30, "background-color": color.panel, "border-width": 2, "border-color": color.dim, label: "data(label)", color: color.text, "font-size": 9, "text-wrap": "wrap", "text-valign": "center", "min-zoomed-font-size": 6, "overlay-opacity": 0 } },
  { selector: "node[state = 'well']", style: { "border-color": color.ok } },
  { selector: "node[state = 'filling']", style: { "border-color": color.warn, "border-width": 3 } },
  { selector: "node[state = 'full']", style: { "border-color": color.bad, "border-width": 3 } },
  { selector: "node[state = 'gone']", style: { "border-style": "dashed", "border-color": color.bad, opacity: 0.6 } },
  { selector: "node[kind = 'broker']", style: { width: 9, height: 9, "background-color": color.accent, label: "data(label)", color: color.dim, "font-size": 8, "text-valign": "bottom", "text-margin-y": 2, "min-zoomed-font-size": 8.5, "overlay-opacity": 0 } },
  { selector: "edge", style: { width: "data(width)", "line-color": color.accent, "line-opacity": 0.5, label: "data(label)", color: color.dim, "font-size": 8, "min-zoomed-font-size": 8, "text-background-color": color.page, "text-background-opacity": 0.85, "text-background-padding": 2, "curve-style": "straight" } },
  { selector: "edge[access]", style: { "line-color": color.dim, "line-opacity": 0.35 } },
  { selector: "[faint = 1]", style: { opacity: 0.12 } },
  { selector: "edge[tree = 1]", style: { "line-color": color.ofm, "line-opacity": 0.95 } },
];
