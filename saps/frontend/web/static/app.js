// The operator's page: views of one state, pushed by the broker; clients and messages are asked for.

import { fill, h } from "/static/dom.js";
import { clock } from "/static/format.js";
import { ClientsView } from "/static/clients.js";
import { DecisionsView } from "/static/decisions.js";
import { MeshView } from "/static/mesh.js";
import { MessagesView } from "/static/messages.js";
import { NetworkView } from "/static/network.js";
import { Store } from "/static/store.js";
import { TopicsView } from "/static/topics.js";

const by = (id) => document.getElementById(id);
const store = new Store();
const names = ["mesh", "topics", "network", "decisions", "clients", "messages"];

const open = (topic) => { go("topics"); views.topics.open(topic); };
const views = {
  mesh: new MeshView(by("view-mesh"), store, open),
  topics: new TopicsView(by("view-topics"), store, (topic, trace) => { go("mesh"); views.mesh.mark(topic, trace); }, () => remember()),
  network: new NetworkView(by("view-network"), store, open),
  decisions: new DecisionsView(by("view-decisions"), store, open),
  clients: new ClientsView(by("view-clients"), store, () => remember()),
  messages: new MessagesView(by("view-messages"), store),
};
views.topics.showTree = (topic) => { views.network.tree = topic; go("network"); };
let current = "mesh";

function go(name) {
  current = names.includes(name) ? name : "mesh";
  for (const each of names) {
    by(`view-${each}`).hidden = each !== current;
    by(`tab-${each}`).setAttribute("aria-selected", String(each === current));
  }
  views[current].refresh();
  remember();
}

function remember() {
  const shown = { topics: views.topics.topic, clients: views.clients.client }[current];
  history.replaceState(null, "", `#${current}${shown ? `?${encodeURIComponent(shown)}` : ""}`);
}

function status() {
  const lost = store.at && !store.connected;
  document.documentElement.dataset.lost = lost ? "yes" : "no";
  by("login").hidden = !store.locked;
  if (store.locked) {
    const again = sessionStorage.getItem("authorization");
    fill(by("login-fault"), again ? store.fault : "Sign in to see this broker.");
    if (!by("login").contains(document.activeElement)) by("login-user").focus();
  }
  const state = store.locked ? ["warn", "log in"] : lost ? ["bad", "no connection, last seen"] : !store.connected ? store.fault ? ["bad", store.fault] : ["warn", "connecting"] : store.fault ? ["warn", store.fault] : store.complete ? ["ok", "live"] : ["warn", "not all brokers answer"];
  fill(by("status"), h("i.dot", { class: state[0] }), h("span", {}, state[1]), store.at ? h("time", {}, clock(store.at)) : null);
  by("seen-from").textContent = store.seenFrom ? `seen from ${store.seenFrom}` : "";
}

function colors(next) {
  const chosen = next ?? localStorage.getItem("colors") ?? "system";
  localStorage.setItem("colors", chosen);
  document.documentElement.dataset.theme = chosen;
  by("theme").textContent = { system: "◐", light: "☀", dark: "☾" }[chosen];
  for (const view of Object.values(views)) view.recolor();
}

const nextColors = () => colors({ system: "dark", dark: "light", light: "system" }[localStorage.getItem("colors") ?? "system"]);

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    if (document.activeElement?.matches("input")) {
      event.preventDefault(); // the browser would empty a search
      document.activeElement.blur();
    } else if (current === "topics" && views.topics.topic) views.topics.close();
    else if (current === "clients" && views.clients.client) views.clients.close();
    else if (current === "mesh") { views.mesh.show(null); views.mesh.mark(null); }
    return;
  }
  if (document.activeElement?.matches("input, select, textarea")) return;
  const keys = {
    1: () => go("mesh"), 2: () => go("topics"), 3: () => go("network"), 4: () => go("decisions"), 5: () => go("clients"), 6: () => go("messages"), l: nextColors, t: () => views.topics.run(),
    "?": () => by("keys").showModal(), "/": () => views[current].search?.focus(),
    ArrowDown: () => current === "topics" && views.topics.scroller.focus(),
  };
  const act = keys[event.key] ?? keys[event.key.toLowerCase()];
  if (act) { event.preventDefault(); act(); }
});

by("login").onsubmit = (event) => {
  event.preventDefault();
  store.login(by("login-user").value, by("login-password").value);
  by("login-password").value = "";
};
for (const name of names) by(`tab-${name}`).onclick = () => go(name);
by("theme").onclick = nextColors;
by("help").onclick = () => by("keys").showModal();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => colors());

let due = false;
store.addEventListener("state", () => {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    status();
    views[current].refresh();
    document.documentElement.dataset.ready = store.at ? "yes" : "no";
  });
});

const [view, chosen] = location.hash.slice(1).split("?").map(decodeURIComponent);
colors();
status();
go(view);
if (chosen) (view === "clients" ? views.clients : views.topics).open(chosen);
store.connect();
window.saps = { store, views, go, open };
