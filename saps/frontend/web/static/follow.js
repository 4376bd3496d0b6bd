// A live trace of a client, of a topic's messages, or of a client's on a topic: what happens, as the brokers see it.

import { fill, h } from "/static/dom.js";
import { bytes, clock, plural } from "/static/format.js";
import { events } from "/static/store.js";

const MOST = 300;
const BAD = ["lost", "refused", "not delivered", "left out"];

export class Follow {
  constructor() {
    this.stopping = null;
    this.button = h("button", { onclick: () => (this.stopping ? this.stop() : this.start()), "data-act": "Follow" }, "Follow live");
    this.narrow = h("input", { type: "search", onchange: () => this.#again() });
    this.said = h("span.hint", { role: "status" });
    this.list = h("ol.plain.messages", { tabindex: "0", "aria-label": "What happens, the latest first", hidden: true });
    this.element = h("div", {}, h("div.bar", {}, this.button, this.narrow, this.said), this.list);
  }

  // What is to be followed: { client } or { filter }. The other one, if it is typed in, must hold too.
  of(wanted) {
    this.stop();
    this.wanted = wanted;
    const [other, text] = wanted.client ? ["filter", "Only topics of this filter"] : ["client", "Only this client's"];
    this.other = other;
    this.narrow.placeholder = text;
    this.narrow.setAttribute("aria-label", text);
    this.narrow.value = "";
    fill(this.list);
    fill(this.said);
    this.list.hidden = true;
  }

  stop() {
    this.stopping?.abort();
    this.stopping = null;
    this.button.textContent = "Follow live";
  }

  // What must hold has changed: a trace that runs begins anew.
  #again() {
    if (!this.stopping) return;
    this.stop();
    this.start();
  }

  async start() {
    const stopping = this.stopping = new AbortController();
    this.button.textContent = "Stop";
    this.list.hidden = false;
    fill(this.list);
    fill(this.said, "Waiting for what happens…");
    let number = 0;
    try {
      for await (const event of events(`/v1/follow?${new URLSearchParams({ ...this.wanted, ...(this.narrow.value ? { [this.other]: this.narrow.value } : {}), seconds: "300" })}`, stopping.signal)) {
        this.list.prepend(this.#row(event));
        while (this.list.children.length > MOST) this.list.lastChild.remove();
        fill(this.said, plural(++number, "event"));
      }
      fill(this.said, `${plural(number, "event")} in 5 minutes`);
    } catch (error) {
      if (this.stopping && this.stopping !== stopping) return; // another one runs
      fill(this.said, stopping.signal.aborted ? plural(number, "event") : h("span.bad", {}, error.message));
    }
    if (this.stopping === stopping) this.stop();
  }

  #row(event) {
    const about = [event.broker, event.client, event.packet, event.topic].filter(Boolean).join(" ");
    return h("li", { class: BAD.includes(event.what) ? "bad" : "" }, h("time", {}, clock(event.at)), " ", h("b", {}, event.what), ` ${about} `,
      event.topic && event.what !== "refused" ? h("small", {}, `QoS ${event.qos ?? 0}, ${bytes(event.size ?? 0)} `) : null, event.text ? h("code", {}, event.text) : null, event.why ? h("span", {}, ` ${event.why}`) : null);
  }
}
