// Messages: publish one, see those of a filter as they come, and what is retained in the mesh.

import { fill, h } from "/static/dom.js";
import { bytes, clock, plural } from "/static/format.js";
import { ask, events, open } from "/static/store.js";

const MOST = 200, PAGE = 50;
const when = (at) => new Date(at * 1000).toLocaleString("en-GB");
const at = (topic) => topic.split("/").map(encodeURIComponent).join("/");
const text = (message) => message.payload ?? (message.data ? `base64 ${message.data}` : "");

export class MessagesView {
  constructor(element, store) {
    this.store = store;
    this.stopping = null;
    const field = (name, props = {}) => h("input", { "aria-label": name, placeholder: name, ...props });
    this.topic = field("Topic", { required: true });
    this.payload = h("textarea", { "aria-label": "Payload", placeholder: "Payload", rows: "3" });
    this.qos = h("select", { "aria-label": "QoS" }, ["0", "1", "2"].map((qos) => h("option", { value: qos, selected: qos === "1" }, `QoS ${qos}`)));
    this.retain = h("input", { type: "checkbox" });
    this.told = h("output");
    this.filter = field("Topic filter", { required: true, value: "#" });
    this.start = h("button", {}, "Subscribe");
    this.said = h("span.hint", { role: "status" });
    this.messages = h("ol.plain.messages", { tabindex: "0", "aria-label": "Messages" });
    this.search = field("Topic filter of retained messages", { type: "search", value: "#" });
    this.rows = h("tbody");
    this.more = h("button", { hidden: true, onclick: () => this.browse(this.last) }, "Next");
    this.fault = h("p.bad", { role: "alert" });
    element.append(h("div.page.messages-page", {},
      h("h2", {}, "Publish"),
      h("form", { onsubmit: (event) => { event.preventDefault(); this.publish(); } }, h("div.bar", {}, this.topic, this.qos, h("label.check", {}, this.retain, " retain")), this.payload, h("div.bar", {}, h("button", {}, "Publish"), this.told)),
      h("h2", {}, "Subscribe"),
      h("form", { onsubmit: (event) => { event.preventDefault(); if (this.stopping) this.stop(); else this.subscribe(); } }, h("div.bar", {}, this.filter, this.start, this.said)),
      this.messages,
      h("h2", {}, "Retained messages"),
      h("form", { onsubmit: (event) => { event.preventDefault(); this.browse(""); } }, h("div.bar", {}, this.search, h("button", {}, "Show"), this.more)), this.fault,
      h("div.table", { tabindex: "0", role: "region", "aria-label": "Retained messages" }, h("table", {},
        h("thead", {}, h("tr", {}, ["Topic", "Payload", "Size", "Published", "At"].map((name, i) => h("th", { scope: "col", class: i > 2 ? "wide" : "" }, name)), h("th", { scope: "col" }, "Delete"))), this.rows))));
  }

  recolor() {}

  refresh() {
    if (this.store.connected && !this.browsed) this.browse("");
  }

  async publish() {
    try {
      const query = new URLSearchParams({ qos: this.qos.value, retain: String(this.retain.checked) });
      const response = await open(`/v1/topics/${at(this.topic.value)}?${query}`, { method: "POST", body: this.payload.value, headers: { "Content-Type": "text/plain" } });
      const found = await response.json();
      this.told.value = found.qos ? `${found.reason}: ${plural(found.subscribers, "subscriber")}, at ${plural(found.brokers, "other broker")}` : "Sent.";
    } catch (error) {
      this.told.value = error.message;
    }
    if (this.retain.checked) setTimeout(() => this.browse(""), 500);
  }

  stop() {
    this.stopping?.abort();
    this.stopping = null;
    this.start.textContent = "Subscribe";
  }

  async subscribe() {
    const stopping = this.stopping = new AbortController();
    this.start.textContent = "Stop";
    fill(this.messages);
    fill(this.said, "Subscribed.");
    let number = 0;
    try {
      const query = new URLSearchParams({ filter: this.filter.value, qos: "0", expiry: "0" });
      for await (const message of events(`/v1/events?${query}`, stopping.signal)) {
        if (!message.topic) continue;
        number++;
        this.messages.prepend(h("li", {}, h("time", {}, clock(Date.now() / 1000)), " ", h("b", {}, message.topic), message.retain ? h("span.badge", {}, "retained") : null, " ", h("code", {}, text(message).slice(0, 500))));
        while (this.messages.children.length > MOST) this.messages.lastChild.remove();
        fill(this.said, `${number} messages`);
      }
      fill(this.said, "The broker has ended the subscription.");
    } catch (error) {
      fill(this.said, stopping.signal.aborted ? `${number} messages` : h("span.bad", {}, error.message));
    }
    if (this.stopping === stopping) this.stop();
  }

  async browse(after) {
    this.browsed = true;
    try {
      const found = await ask(`/v1/retained?${new URLSearchParams({ filter: this.search.value || "#", after, limit: String(PAGE) })}`);
      fill(this.fault, found.complete ? "" : "Not all brokers have answered.");
      this.last = found.messages.at(-1)?.topic ?? "";
      this.more.hidden = !found.more;
      fill(this.rows, found.messages.length ? found.messages.map((row) => h("tr", {}, h("td", {}, row.topic), h("td", {}, h("code", {}, row.text.slice(0, 120))), h("td.number", {}, bytes(row.size)),
        h("td.wide", {}, when(row.at)), h("td.wide", {}, row.broker),
        h("td", {}, h("button.small", { "aria-label": `Delete ${row.topic}`, onclick: () => this.remove(row.topic, after) }, "Delete")))) : h("tr", {}, h("td", { colspan: "6" }, "Nothing is retained.")));
    } catch (error) {
      fill(this.fault, error.message);
    }
  }

  async remove(topic, after) {
    try {
      await ask(`/v1/retained/${at(topic)}`, "DELETE");
      setTimeout(() => this.browse(after), 500);
    } catch (error) {
      fill(this.fault, error.message);
    }
  }
}
