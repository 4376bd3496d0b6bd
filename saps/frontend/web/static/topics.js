// Topics: a list of which only what is seen is there, a search, and one topic in detail.

import { Chart } from "/static/chart.js";
import { fill, h } from "/static/dom.js";
import { Follow } from "/static/follow.js";
import { bytes, count, plural, rate, seconds } from "/static/format.js";
import { facts } from "/static/mesh.js";
import { ask } from "/static/store.js";

const phone = matchMedia("(max-width: 760px)");
const height = () => (phone.matches ? 56 : 38); // of a row, as in the style sheet
export const MODES = { alm: "ALM", constructing: "under construction", constructed: "OFM", updating: "updating", deleting: "deleting", refused: "refused" };
const COLUMNS = [
  ["topic", "Topic", (row) => row.topic], ["mode", "Mode", (row) => Object.keys(MODES).indexOf(row.mode), "ALM: from broker to broker. OFM: by the switches, along a tree"],
  ["rate", "Messages /s", (row) => row.rate], ["bytes", "Payload /s", (row) => row.bytes], ["subscribers", "Subscribers", (row) => row.subscribers],
  ["brokers", "Brokers", (row) => row.brokers.length, "With subscribers"], ["latency", "Latency", (row) => row.latency?.[1] ?? -1, "Until all members had confirmed 95 of 100 publications of QoS 1 or 2"],
];

const GRID = { role: "gridcell" };

export const badge = (mode) => h("span.badge", { class: mode }, MODES[mode] ?? mode);

export class TopicsView {
  constructor(element, store, showOnMesh, changed) {
    this.store = store;
    this.showOnMesh = showOnMesh;
    this.changed = changed;
    this.showTree = () => {};
    this.rows = [];
    this.sort = { name: "rate", down: true };
    this.mode = "";
    this.topic = null;
    this.at = 0;
    this.trace = null;
    this.search = h("input", { type: "search", placeholder: "Search topics", "aria-label": "Search topics", oninput: () => this.refresh(true) });
    this.modes = h("div.chips", { role: "group", "aria-label": "Mode" });
    this.total = h("span.hint");
    this.head = h("div.columns", { role: "row", "aria-rowindex": "1" });
    this.spacer = h("div.spacer", { role: "none" });
    this.window = h("div.window", { role: "none" });
    this.scroller = h("div.scroller", { tabindex: "0", role: "rowgroup", "aria-label": "Topics: arrow keys choose one", onscroll: () => this.#paint(), onkeydown: (event) => this.#key(event) }, this.spacer, this.window);
    this.list = h("div.list", {}, h("div.bar", {}, this.search, this.modes, this.total),
      this.grid = h("div.grid", { role: "grid", "aria-label": "Topics" }, h("div", { role: "rowgroup" }, this.head), this.scroller));
    this.detail = h("aside.side.detail");
    this.follow = new Follow();
    this.chart = new Chart([{ label: "messages /s", color: "accent" }], 120);
    element.append(this.list, this.detail);
    new ResizeObserver(() => this.#paint()).observe(this.scroller);
    phone.addEventListener("change", () => this.refresh(true));
  }

  recolor() {
    this.chart.recolor();
  }

  refresh(anew = false) {
    const wanted = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const numbers = { "": 0 };
    const found = [];
    for (const row of this.store.topics.values()) {
      const name = row.topic.toLowerCase();
      if (!wanted.every((word) => name.includes(word))) continue;
      numbers[""]++;
      numbers[row.mode] = (numbers[row.mode] ?? 0) + 1;
      if (!this.mode || row.mode === this.mode) found.push(row);
    }
    const value = COLUMNS.find(([name]) => name === this.sort.name)[2];
    const sign = this.sort.down ? -1 : 1;
    found.sort((a, b) => {
      const x = value(a), y = value(b);
      return x < y ? -sign : x > y ? sign : a.topic < b.topic ? -1 : 1;
    });
    this.rows = found;
    if (anew) { this.scroller.scrollTop = 0; this.at = 0; }
    const beyond = this.store.topicsTotal > this.store.topics.size ? `, the busiest of ${count(this.store.topicsTotal)}` : "";
    fill(this.total, `${count(found.length)} of ${plural(this.store.topics.size, "topic")}${beyond}`);
    fill(this.modes, Object.entries({ "": "all", ...MODES }).filter(([mode]) => !mode || numbers[mode] || this.mode === mode).map(([mode, text]) =>
      h("button.chip", { "aria-pressed": String(mode === this.mode), onclick: () => { this.mode = mode; this.refresh(true); } }, `${text} `, h("small", {}, count(numbers[mode] ?? 0)))));
    fill(this.head, COLUMNS.map(([name, text, , title]) => h("div.cell", { class: name, role: "columnheader", title, "aria-sort": this.sort.name === name ? (this.sort.down ? "descending" : "ascending") : "none" },
      h("button", { onclick: () => { this.sort = { name, down: this.sort.name === name ? !this.sort.down : name !== "topic" }; this.refresh(true); } }, text, this.sort.name === name ? (this.sort.down ? " ↓" : " ↑") : ""))));
    this.spacer.style.height = `${found.length * height()}px`;
    this.grid.setAttribute("aria-rowcount", String(found.length + 1));
    this.#paint();
    if (this.topic) this.#update();
  }

  open(topic) {
    this.topic = topic;
    this.trace = null;
    this.#build();
    this.#paint();
    this.changed();
  }

  close() {
    this.topic = null;
    this.follow.stop();
    fill(this.detail);
    this.detail.classList.remove("open");
    this.#paint();
    this.changed();
    this.scroller.focus({ preventScroll: true });
  }

  async run() {
    if (!this.topic) return;
    const topic = this.topic, from = this.source?.value;
    fill(this.way, h("p.hint", {}, "Asking the brokers on the way…"));
    try {
      const path = topic.split("/").map(encodeURIComponent).join("/");
      const trace = await ask(`/v1/trace/${path}${from ? `?from=${encodeURIComponent(from)}` : ""}`);
      if (topic !== this.topic) return;
      this.trace = trace;
      this.#way();
    } catch (error) {
      fill(this.way, h("p.warning", {}, error.message));
    }
  }

  #paint() {
    const { scrollTop, clientHeight } = this.scroller;
    const first = Math.max(0, Math.floor(scrollTop / height()) - 6);
    const last = Math.min(this.rows.length, Math.ceil((scrollTop + (clientHeight || 600)) / height()) + 6);
    this.window.style.transform = `translateY(${first * height()}px)`;
    fill(this.window, this.rows.length ? this.rows.slice(first, last).map((row, i) => this.#row(row, first + i)) : h("p.empty", { role: "row" }, h("span", GRID, this.store.topics.size ? "No topic is as wanted." : "No broker knows a topic yet.")));
  }

  #row(row, index) {
    const chosen = row.topic === this.topic;
    return h("div.columns", { role: "row", class: `${chosen ? "chosen" : ""} ${index === this.at ? "at" : ""}`, "aria-rowindex": index + 2, "aria-selected": String(chosen), onclick: () => { this.at = index; this.open(row.topic); } },
      h("span.cell.topic", { role: "gridcell", title: row.topic }, row.priority ? h("i.flag", { title: `priority ${row.priority}` }, "▲") : null, row.topic),
      h("span.cell.mode", GRID, badge(row.mode)), h("span.cell.rate", GRID, rate(row.rate)), h("span.cell.bytes", GRID, row.bytes ? bytes(row.bytes) : "0"),
      h("span.cell.subscribers", GRID, count(row.subscribers)), h("span.cell.brokers", GRID, count(row.brokers.length)), h("span.cell.latency", GRID, row.latency ? `≤ ${seconds(row.latency[1])}` : "–"));
  }

  #key(event) {
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / height()) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -this.rows.length, End: this.rows.length };
    if (event.key === "Enter" && this.rows[this.at]) this.open(this.rows[this.at].topic);
    else if (event.key in steps) {
      this.at = Math.max(0, Math.min(this.rows.length - 1, this.at + steps[event.key]));
      const top = this.at * height(), { scrollTop, clientHeight } = this.scroller;
      if (top < scrollTop) this.scroller.scrollTop = top;
      else if (top + height() > scrollTop + clientHeight) this.scroller.scrollTop = top + height() - clientHeight;
      this.#paint();
    } else return;
    event.preventDefault();
  }

  #build() {
    this.now = h("div");
    this.way = h("div.way");
    this.source = h("select", { "aria-label": "Published at", onchange: () => this.run() });
    this.detail.classList.add("open");
    fill(this.detail,
      h("div.head", {}, h("h2", {}, this.topic), h("button.icon", { "aria-label": "Close", onclick: () => this.close() }, "×")),
      this.now, this.chart.element,
      h("h3", {}, "Where a message would go"),
      h("div.bar", {}, h("label", {}, "from ", this.source), h("button", { onclick: () => this.run() }, "Trace"), h("button", { onclick: () => this.showOnMesh(this.topic, this.trace) }, "Show on mesh"), this.tree = h("button", { onclick: () => this.showTree(this.topic) }, "Show tree")),
      this.way,
      ["operator", "administrator"].includes(this.store.role) ? [h("h3", {}, "What becomes of its messages"), this.follow.element] : null);
    this.follow.of({ filter: this.topic });
    const row = this.store.topics.get(this.topic);
    const publishers = row?.publishers ?? [];
    const others = [...this.store.brokers.keys()].filter((name) => !publishers.includes(name));
    fill(this.source,
      publishers.length ? h("optgroup", { label: "Publish to it" }, publishers.map((name) => h("option", { value: name }, name))) : h("option", { value: "" }, "this broker"),
      h("optgroup", { label: "Other brokers" }, others.map((name) => h("option", { value: name }, name))));
    this.#update();
  }

  #update() {
    const row = this.store.topics.get(this.topic);
    this.tree.hidden = true;
    if (!row) return void fill(this.now, h("p.hint", {}, "No broker knows this topic at the moment."));
    this.tree.hidden = !this.store.network.trees.some((tree) => tree.topic === this.topic);
    const some = (names) => (names.length > 12 ? `${names.slice(0, 12).join(", ")} and ${names.length - 12} more` : names.join(", ") || "none");
    fill(this.now, row.reason ? h("p.warning", {}, row.reason) : null, facts([
      ["Mode", badge(row.mode)], ["Tree", row.address], ["Messages", `${rate(row.rate)} /s`], ["Payload", `${bytes(row.bytes)}/s`],
      ["Subscribers", `${plural(row.subscribers, "client")} at ${plural(row.brokers.length, "broker")}`],
      ["Latency", row.latency ? `half within ${seconds(row.latency[0])}, 95 % within ${seconds(row.latency[1])}` : "not measured (QoS 1 and 2)"],
      ["Priority", row.priority ? String(row.priority) : null], ["Published at", some(row.publishers)], ["Subscribed at", some(row.brokers)],
    ]));
    this.chart.set(this.store.times, [this.store.history(this.topic)]);
  }

  #way() {
    const { trace } = this;
    const clients = new Map(trace.ends.map((end) => [end.broker, end.clients]));
    const onward = Map.groupBy ? Map.groupBy(trace.hops, (hop) => hop.source) : groupBy(trace.hops);
    const step = (name, hop) => h("li", {},
      hop ? h("span.badge", { class: hop.by === "ofm" ? "constructed" : "alm" }, hop.by.toUpperCase()) : h("span.badge", {}, "device"), " → ", h("b", {}, name),
      hop?.crosses ? h("small", {}, " other cluster") : null,
      clients.has(name) ? h("small", {}, ` → ${plural(clients.get(name), "client")}`) : null,
      onward.has(name) ? h("ul", {}, onward.get(name).map((next) => step(next.target, next))) : null);
    fill(this.way, trace.complete ? null : h("p.warning", {}, "Not all brokers on the way have answered."),
      h("ul.tree", {}, step(trace.source, null)), h("h3", {}, "Why"), h("ul.reasons", {}, trace.reasons.map((reason) => h("li", {}, reason))));
  }
}

function groupBy(hops) {
  const found = new Map();
  for (const hop of hops) found.set(hop.source, [...(found.get(hop.source) ?? []), hop]);
  return found;
}
