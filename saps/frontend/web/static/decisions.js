// Decisions: which topics shall have trees, why, and what came and went.

import { fill, h } from "/static/dom.js";
import { bytes, clock, count, duration, plural } from "/static/format.js";

const net = (tree) => (tree.saving ?? 0) - (tree.cost ?? 0);
// Name, title, what it is sorted by, is it a number, what it means.
const COLUMNS = [
  ["topic", "Topic", (tree) => tree.topic, false, null],
  ["saving", "Saves", (tree) => tree.saving ?? 0, true, "Expected saving between clusters, bytes a second"],
  ["cost", "Costs", (tree) => tree.cost ?? 0, true, "Cost of keeping the tree, bytes a second"],
  ["net", "Net", net, true, "Saving less cost"],
  ["saved", "Saved", (tree) => tree.saved ?? 0, true, "Bytes between clusters that it has saved since it was built"],
  ["predicted", "Predicted", (tree) => tree.predicted ?? 0, true, "Bytes that were predicted for the same time"],
  ["since", "Since", (tree) => tree.since ?? 0, true, "When this was decided"],
  ["state", "State", (tree, state) => state?.status ?? "", false, "What became of it at OFGate"],
  ["reason", "Why", (tree) => tree.reason ?? "", false, null],
];

export class DecisionsView {
  constructor(element, store, open) {
    this.store = store;
    this.open = open;
    this.body = h("div.page");
    this.table = h("table");
    this.sort = { name: "net", down: true };
    element.append(this.body);
    this.shown = null;
  }

  recolor() {}

  refresh() {
    const { decisions } = this.store;
    if (decisions === this.shown) return;
    this.shown = decisions;
    if (!this.store.at) {
      fill(this.body, h("div.empty", {}, h("p", {}, "The broker has not answered yet.")));
      return;
    }
    if (!decisions.configured) {
      fill(this.body, h("div.empty", {}, h("h2", {}, "No decisions"), h("p", {}, "This broker knows no address for OFGate's decisions. Set ", h("code", {}, "web.ofgate"), " to the address of ", h("code", {}, "saps ofgate --decisions"), ", such as http://127.0.0.1:8282, to see here which topics get an OpenFlow tree, and why.")));
      return;
    }
    this.#table(decisions);
    fill(this.body,
      decisions.fault ? h("p.warning", {}, decisions.fault) : null,
      h("h2", {}, decisions.trees.length === 1 ? "1 topic shall have a tree" : `${plural(decisions.trees.length, "topic")} shall have trees`),
      h("p.hint", {}, decisions.epoch ? `Table of ${new Date(decisions.epoch).toLocaleString("en-GB")}` : "OFGate has been given no table yet."),
      decisions.revoked.map((row) => h("p.warning", {}, h("b", {}, row.topic), `: ${row.reason}`)),
      h("div.table", { tabindex: "0", role: "region", "aria-label": "Decisions" }, this.table),
      ...this.#job(decisions),
      h("h2", {}, "History of the trees"),
      decisions.history.length ? h("ol.history", {}, decisions.history.map((change) => h("li", {}, h("time", {}, clock(change.at)), h("span.badge", { class: change.action === "build" ? "constructed" : "alm" }, change.action), h("b", {}, change.topic), h("span", {}, change.reason)))) : h("p.hint", {}, "Nothing since this broker began to look. It looks while a page is open."));
  }

  #job({ job, trees }) {
    const sum = (name) => trees.reduce((all, tree) => all + (tree[name] ?? 0), 0);
    const saved = job ? job.saved : sum("saved"), predicted = job ? job.predicted : sum("predicted");
    const money = `Saved ${bytes(saved)} of ${bytes(predicted)} predicted${predicted > 0 ? `, ${Math.round((100 * saved) / predicted)} %` : ""}, ${job ? "all trees so far" : "the trees that stand"}.`;
    if (!job) return trees.length ? [h("p", {}, money)] : [];
    const now = Date.now() / 1000, lag = job.closed ? now - job.closed : null, age = now - job.decided;
    return [
      h("h2", {}, "The job"),
      age > 3 * job.window ? h("p.warning", {}, `No decision for ${duration(age)}: no window was closed.`) : null,
      h("p", {}, money),
      h("dl.facts", {}, [
        ["Batches", `${count(job.batches)}${job.failures ? `, ${count(job.failures)} failed` : ""}`],
        ["Rows", `${count(job.rows)}, ${count(job.late)} late`],
        ["Files waiting", count(job.waiting)],
        ["In quarantine", `${plural(job.bad_files, "file")}, ${plural(job.bad_rows, "row")}`],
        ["Behind", lag === null ? "no window yet" : duration(lag)],
        ["Last decision", `${duration(age)} ago`],
      ].flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    ];
  }

  #table(decisions) {
    const states = new Map(decisions.topics.map((row) => [row.topic, row]));
    const [, , value] = COLUMNS.find(([name]) => name === this.sort.name), sign = this.sort.down ? -1 : 1;
    const of = (tree) => value(tree, states.get(tree.topic));
    const trees = [...decisions.trees].sort((a, b) => (of(a) < of(b) ? -sign : of(a) > of(b) ? sign : a.topic < b.topic ? -1 : 1));
    const sorted = (name) => (this.sort.name === name ? (this.sort.down ? "descending" : "ascending") : "none");
    const head = COLUMNS.map(([name, text, , number, title]) => h("th", { scope: "col", class: number ? "number" : "", "aria-sort": sorted(name), title },
      h("button", { onclick: () => { this.sort = { name, down: this.sort.name === name ? !this.sort.down : number }; this.#table(decisions); } }, text, { ascending: " ↑", descending: " ↓", none: "" }[sorted(name)])));
    fill(this.table, h("thead", {}, h("tr", {}, head)), h("tbody", {}, trees.map((tree) => {
      const state = states.get(tree.topic);
      return h("tr", {}, h("td", {}, h("button", { onclick: () => this.open(tree.topic) }, tree.topic)),
        ...["saving", "cost"].map((name) => h("td.number", {}, `${bytes(tree[name] ?? 0)}/s`)), h("td.number", {}, `${bytes(net(tree))}/s`),
        ...["saved", "predicted"].map((name) => h("td.number", {}, bytes(tree[name] ?? 0))),
        h("td.number", {}, tree.since ? new Date(tree.since).toLocaleString("en-GB") : ""),
        h("td", { title: state?.reason ?? null }, state?.status ?? ""), h("td", {}, tree.reason || "no reason given"));
    })));
  }
}
