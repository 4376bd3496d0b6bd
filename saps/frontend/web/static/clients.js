// Clients of all brokers: a list that is asked for, one client in detail, bans, and who changed what.

import { fill, h } from "/static/dom.js";
import { Follow } from "/static/follow.js";
import { bytes, changes, count, duration, plural, rate } from "/static/format.js";
import { facts } from "/static/mesh.js";
import { ask } from "/static/store.js";

const EVERY = 2000, PAUSE = 250;
const SORTS = { client: "by name", rate: "who publishes most", delivered: "who gets most", queued: "most waiting", dropped: "most dropped", since: "latest first" };
const COLUMNS = [["Client", ""], ["Broker", ""], ["User", "wide"], ["Address", "wide"], ["Since", "wide"], ["In /s", "number"], ["Out /s", "number wide"], ["Waiting", "number"], ["Dropped", "number wide"]];
const LASTS = { 3600: "for an hour", 86400: "for a day", 604800: "for a week", "": "until lifted" };
const ROLES = ["none", "viewer", "operator", "administrator"];
const when = (at) => new Date(at * 1000).toLocaleString("en-GB");
const path = (client) => `/v1/clients/${encodeURIComponent(client)}`;

export class ClientsView {
  constructor(element, store, changed) {
    this.store = store;
    this.changed = changed;
    this.client = null;
    this.found = null;
    this.search = h("input", { type: "search", placeholder: "Client, user, address", "aria-label": "Search clients", oninput: () => this.#soon() });
    this.filter = h("input", { type: "search", placeholder: "Subscribed to topic", "aria-label": "Subscribed to", oninput: () => this.#soon() });
    this.state = h("select", { "aria-label": "State", onchange: () => this.#anew() }, ...[["", "here or away"], ["connected", "connected"], ["away", "away"]].map(([value, text]) => h("option", { value }, text)));
    this.sort = h("select", { "aria-label": "Sort", onchange: () => this.#anew() }, ...Object.entries(SORTS).map(([value, text]) => h("option", { value }, text)));
    this.total = h("span.hint", { role: "status" });
    this.limit = 200; // clients on a page
    this.pages = [null]; // what `after` is for each page up to the one that is shown
    this.back = h("button", { onclick: () => this.#turn(-1), disabled: true }, "Back");
    this.next = h("button", { onclick: () => this.#turn(1), disabled: true }, "Next");
    this.rows = h("tbody");
    this.detail = h("div");
    this.follow = new Follow();
    this.bans = h("div");
    this.wanted = h("input", { type: "search", placeholder: "Only with this text", "aria-label": "Search who changed what", oninput: () => this.#soon(() => this.ask()) });
    this.log = h("div");
    this.audit = h("div", { hidden: true }, h("h3", {}, "Who changed what"), h("div.bar", {}, this.wanted), this.log);
    this.beside = h("div", {}, this.bans, this.audit);
    this.side = h("aside.side.detail", {}, this.detail, this.beside);
    element.append(h("div.list", {}, h("div.bar", {}, this.search, this.filter, this.state, this.sort, this.total, this.back, this.next),
      h("div.table.tall", { tabindex: "0", role: "region", "aria-label": "Clients" }, h("table", {},
        h("thead", {}, h("tr", {}, COLUMNS.map(([text, kind]) => h("th", { scope: "col", class: kind }, text)))), this.rows))), this.side);
    setInterval(() => { if (!element.hidden && !document.hidden) this.ask(); }, EVERY);
  }

  recolor() {}

  refresh() {
    if (this.store.at && !this.found) this.ask();
  }

  may(role) { return ROLES.indexOf(this.store.role) >= ROLES.indexOf(role); }

  #soon(then = () => this.#anew()) {
    clearTimeout(this.due);
    this.due = setTimeout(then, PAUSE);
  }

  // Another question: its first page.
  #anew() {
    this.pages = [null];
    this.ask();
  }

  #turn(by) {
    if (by < 0) this.pages.pop();
    else this.pages.push(this.found.next);
    this.back.disabled = this.next.disabled = true; // until the answer is there
    this.ask();
  }

  // Ask for the list, the client that is open, bans and the audit log.
  async ask() {
    if (this.asking || !this.store.connected) {
      this.again = this.asking;
      return;
    }
    this.asking = true;
    this.again = false;
    const wanted = new URLSearchParams({ search: this.search.value, sort: this.sort.value, limit: this.limit });
    if (this.filter.value) wanted.set("filter", this.filter.value);
    if (this.state.value) wanted.set("state", this.state.value);
    if (this.pages.at(-1)) wanted.set("after", this.pages.at(-1));
    try {
      this.found = await ask(`/v1/clients?${wanted}`);
      this.#list();
    } catch (error) {
      fill(this.total, h("span.bad", {}, error.message));
    }
    try {
      await (this.client ? this.#client() : this.#beside());
    } finally {
      this.asking = false;
    }
    if (this.again) await this.ask(); // the question has changed meanwhile
  }

  #list() {
    const { clients, total, complete, at } = this.found, page = this.pages.length;
    if (!this.again) {
      this.back.disabled = page === 1;
      this.next.disabled = this.found.next === null;
    }
    fill(this.total, `${page > 1 ? `page ${page}: ` : ""}${clients.length < total ? `${count(clients.length)} of ` : ""}${plural(total, "client")}${complete ? "" : ", not all brokers answered"}`);
    const number = (value, kind = "number") => h("td", { class: kind }, value);
    fill(this.rows, clients.length ? clients.map((row) => h("tr", { class: row.client === this.client ? "chosen" : "" },
      h("td", {}, h("button", { onclick: () => this.open(row.client), "aria-pressed": String(row.client === this.client) }, h("i.dot", { class: row.connected ? "ok" : "", title: row.connected ? "connected" : "away" }), ` ${row.client}`)),
      h("td", {}, row.broker), h("td.wide", {}, row.user ?? h("span.hint", {}, "anonymous")), h("td.wide", {}, row.address || "away"), h("td.wide", {}, duration(Math.max(0, at - row.since))),
      number(row.published_rate === null ? "" : rate(row.published_rate)), number(row.delivered_rate === null ? "" : rate(row.delivered_rate), "number wide"), number(count(row.queued)), number(count(row.dropped), "number wide")))
      : h("tr", {}, h("td", { colspan: String(COLUMNS.length) }, "No client is as wanted.")));
  }

  open(client) {
    this.client = client;
    this.side.classList.add("open");
    this.follow.of({ client });
    fill(this.detail, h("div.head", {}, h("h2", {}, client), this.#closer()));
    this.beside.hidden = true;
    this.changed();
    this.#client().catch(() => {});
    if (this.found) this.#list();
  }

  close() {
    this.client = null;
    this.side.classList.remove("open");
    this.follow.stop();
    fill(this.detail);
    this.beside.hidden = false;
    this.changed();
    if (this.found) this.#list();
    this.#beside();
  }

  #closer() { return h("button.icon", { "aria-label": "Close", onclick: () => this.close() }, "×"); }

  async #client() {
    const { client } = this;
    let found;
    try {
      found = await ask(path(client));
    } catch (error) {
      if (client === this.client) fill(this.detail, h("div.head", {}, h("h2", {}, client), this.#closer()), h("p.warning", {}, error.message));
      return;
    }
    if (client !== this.client || this.detail.contains(document.activeElement?.closest("select"))) return;
    const { row } = found, focused = document.activeElement?.dataset.act;
    const pace = (total, now) => `${count(total)}${now === null ? "" : `, ${rate(now)} /s`}`;
    const end = found.expiry === 0xffffffff ? "for ever" : `for ${duration(found.expiry)}`;
    fill(this.detail, h("div.head", {}, h("h2", {}, client), this.#closer()),
      h("p", {}, h("span.badge", { class: row.connected ? "constructed" : "" }, row.connected ? "connected" : "away"), ` ${row.connected ? "to" : "from"} ${row.broker} since ${when(row.since)}`),
      found.reading === false ? h("p.warning", {}, "It is not read for the moment: what it has published waits for others.") : null,
      facts([["User", row.user ?? "anonymous"], ["From", row.connected ? row.address : null], ["Protocol", row.protocol || null],
        ["Session", found.expiry ? `kept ${end}${found.stored ? ", stored" : ""}` : "ends with the connection"], ["Ends", found.ends ? when(found.ends) : null],
        ["Published", pace(row.published, row.published_rate)], ["Delivered", pace(row.delivered, row.delivered_rate)], ["Dropped", count(row.dropped)],
        ["In flight", `${count(row.inflight)}${found.receive_maximum ? ` of ${count(found.receive_maximum)}` : ""}`], ["Waiting", `${plural(row.queued, "message")}, ${bytes(row.queued_bytes)}`],
        ["Keep-alive", found.keep_alive ? `${found.keep_alive} s` : null], ["Last will", found.will ? `${found.will.topic}: ${found.will.text || bytes(found.will.size)}` : null]]),
      this.may("operator") ? h("div.bar", {}, this.#act("Disconnect", "", row.connected), this.#act("End session", "?session=end", true)) : null,
      this.fault = h("p.bad", { role: "alert" }),
      this.may("administrator") ? this.#banForm([["client", client], ["user", row.user], ["address", row.address.replace(/:\d+$/, "")]].filter(([, name]) => name)) : null,
      this.may("operator") ? this.follow.element : null,
      h("h3", {}, plural(row.subscriptions, "subscription")),
      h("ul.plain", {}, found.subscriptions.map((each) => h("li", {}, h("code", {}, each.filter), h("small", {}, ` QoS ${each.qos}${each.no_local ? ", no local" : ""}`), each.permitted ? null : h("span.bad", {}, " not permitted")))),
      ...[["In flight", found.inflight], ["Waiting", found.queue]].filter(([, rows]) => rows.length).flatMap(([title, rows]) => [h("h3", {}, title),
        h("ul.plain", {}, rows.slice(0, 50).map((each) => h("li", {}, h("b", {}, each.topic), h("small", {}, ` QoS ${each.qos}, ${bytes(each.size)} `), h("code", {}, each.text.slice(0, 60)))))]));
    this.detail.querySelector(`[data-act="${focused}"]`)?.focus();
  }

  #act(text, query, enabled) {
    const run = async () => {
      try {
        await ask(`${path(this.client)}${query}`, "DELETE");
      } catch (error) {
        fill(this.fault, error.message);
        return;
      }
      await this.ask();
    };
    return h("button", { onclick: run, disabled: !enabled, "data-act": text }, text);
  }

  #banForm(choices) {
    const what = h("select", { "aria-label": "What is banned" }, choices.map(([kind, name]) => h("option", { value: JSON.stringify([kind, name]) }, `${kind} ${name}`)));
    const lasts = h("select", { "aria-label": "How long" }, Object.entries(LASTS).map(([value, text]) => h("option", { value }, text)));
    const run = async () => {
      const [kind, name] = JSON.parse(what.value);
      try {
        await ask("/v1/bans", "POST", { kind, name, seconds: lasts.value ? Number(lasts.value) : null });
      } catch (error) {
        fill(this.fault, error.message);
        return;
      }
      this.close();
    };
    return h("div.bar", {}, what, lasts, h("button", { onclick: run, "data-act": "Ban" }, "Ban"));
  }

  // Without a client: who is banned, and who changed what.
  async #beside() {
    try {
      const { bans } = await ask("/v1/bans");
      const log = this.may("administrator") ? await ask(`/v1/audit?${new URLSearchParams({ search: this.wanted.value, limit: 30 })}`) : null;
      if (this.client) return;
      const lift = async (ban) => { await ask(`/v1/bans/${ban.kind}/${encodeURIComponent(ban.name)}`, "DELETE"); await this.#beside(); };
      fill(this.bans, h("h2", {}, bans.length ? plural(bans.length, "ban") : "Nobody is banned"),
        h("ul.plain", {}, bans.map((ban) => h("li", {}, h("b", {}, `${ban.kind} ${ban.name}`), h("small", {}, ` ${ban.until ? `until ${when(ban.until)}` : "until lifted"}${ban.by ? `, by ${ban.by}` : ""}${ban.reason ? `: ${ban.reason}` : ""} `),
          this.may("administrator") ? h("button.small", { onclick: () => lift(ban) }, `Lift`) : null))));
      this.audit.hidden = !log;
      fill(this.log, log?.entries.length ? h("ol.plain", {}, log.entries.map(entryLine)) : h("p.hint", {}, this.wanted.value ? "Nothing with this text." : "Nothing since the brokers started."));
    } catch (error) {
      if (!this.client) fill(this.bans, h("p.warning", {}, error.message));
    }
  }
}

// One change: when, who, from where, what, before and after.
function entryLine({ at, who, source, broker, what, subject, reason, before, after }) {
  const signal = source === "signal", from = source && !signal ? ` from ${source}` : "";
  const details = [reason, ...changes(before, after)].filter(Boolean).join("; ");
  return h("li", {}, h("time", {}, when(at)), " ", h("b", {}, who ?? (signal ? "a signal" : "anonymous")), ` ${what} `, h("span", {}, subject ?? ""),
    h("small", {}, ` at ${broker}${from}${details ? `: ${details}` : ""}`));
}
