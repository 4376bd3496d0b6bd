// Decisions: which topics shall have trees, why, and what came and went.

import { fill, h } from "/static/dom.js";
import { bytes, clock, plural } from "/static/format.js";

export class DecisionsView {
  constructor(element, store, open) {
    this.store = store;
    this.open = open;
    this.body = h("div.page");
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
      fill(this.body, h("div.empty", {}, h("h2", {}, "No decisions"), h("p", {}, "This broker has not been told where OFGate takes decisions. Set ", h("code", {}, "web.ofgate"), " to the address of ", h("code", {}, "saps ofgate --decisions"), ", such as http://127.0.0.1:8282, to see here which topics get an OpenFlow tree, and why.")));
      return;
    }
    const trees = [...decisions.trees].sort((a, b) => (b.saving ?? 0) - (a.saving ?? 0));
    const states = new Map(decisions.topics.map((row) => [row.topic, row]));
    const most = Math.max(1, ...trees.map((tree) => tree.saving ?? 0));
    fill(this.body,
      decisions.fault ? h("p.warning", {}, decisions.fault) : null,
      h("h2", {}, trees.length === 1 ? "1 topic shall have a tree" : `${plural(trees.length, "topic")} shall have trees`),
      h("p.hint", {}, decisions.epoch ? `Table of ${new Date(decisions.epoch).toLocaleString("en-GB")}` : "OFGate has been given no table yet."),
      h("div.cards", {}, trees.map((tree) => h("button.card", { onclick: () => this.open(tree.topic) },
        h("b", {}, tree.topic), h("span.meter", {}, h("i.ok", { style: { width: `${(100 * (tree.saving ?? 0)) / most}%` } }), h("b", {}, `saves ${bytes(tree.saving ?? 0)}/s, costs ${bytes(tree.cost ?? 0)}/s`)),
        h("span", {}, tree.reason || "no reason given"),
        states.has(tree.topic) ? h("small", {}, `${states.get(tree.topic).status}${states.get(tree.topic).reason ? `: ${states.get(tree.topic).reason}` : ""}`) : null))),
      h("h2", {}, "What came and went"),
      decisions.history.length ? h("ol.history", {}, decisions.history.map((change) => h("li", {}, h("time", {}, clock(change.at)), h("span.badge", { class: change.action === "build" ? "constructed" : "alm" }, change.action), h("b", {}, change.topic), h("span", {}, change.reason)))) : h("p.hint", {}, "Nothing since this broker began to look. It looks while a page is open."));
  }
}
