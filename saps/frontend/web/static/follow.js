// A live trace of a client, or of a topic's messages: what happens to them, as the brokers see it.

import { fill, h } from "/static/dom.js";
import { bytes, clock, plural } from "/static/format.js";
import { events } from "/static/store.js";

const MOST = 300;
const BAD = ["lost", "refused", "not delivered", "left out"];

export class Follow {
  constructor() {
    this.stopping = null;
    this.button = h("button", { onclick: () => (this.stopping ? this.stop() : this.start()), "data-act": "Follow" }, "Follow live");
    this.said = h("span.hint", { role: "status" });
    this.list = h("ol.plain.messages", { tabindex: "0", "aria-label": "What happens, the latest first", hidden: true });
    this.element = h("div", {}, h("div.bar", {}, this.button, this.said), this.list);
  }

  // What is to be followed: { client } or { filter }.
  of(wanted) {
    this.stop();
    this.wanted = wanted;
    fill(this.list);
    fill(this.said);
    this.list.hidden = true;
  }

  stop() {
    this.stopping?.abort();
    this.stopping = null;
    this.button.textContent = "Follow live";
  }

  async start() {
    const stopping = this.stopping = new AbortController();
    this.button.textContent = "Stop";
    this.list.hidden = false;
    fill(this.list);
    fill(this.said, "Waiting for what happens…");
    let number = 0;
    try {
      for await (const event of events(`/v1/follow?${new URLSearchParams({ ...this.wanted, seconds: "300" })}`, stopping.signal)) {
        this.list.prepend(this.#row(event));
        while (this.list.children.length > MOST) this.list.lastChild.remove();
        fill(this.said, plural(++number, "event"));
      }
      fill(this.said, `${plural(number, "event")} in 5 minutes`);
    } catch (error) {
      fill(this.said, stopping.signal.aborted ? plural(number, "event") : h("span.bad", {}, error.message));
    }
    if (this.stopping === stopping) this.stop();
  }

  #row(event) {
    const about = [event.broker, event.client, event.packet, event.topic].filter(Boolean).join(" ");
    return h("li", { class: BAD.includes(event.what) ? "bad" : "" }, h("time", {}, clock(event.at)), " ", h("b", {}, event.what), ` ${about} `,
      event.topic ? h("small", {}, `QoS ${event.qos ?? 0}, ${bytes(event.size ?? 0)} `) : null, event.text ? h("code", {}, event.text) : null, event.why ? h("span", {}, ` ${event.why}`) : null);
  }
}
