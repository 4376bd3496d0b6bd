// The state of the mesh as the broker pushes it: everything once, then what has changed.

const HISTORY = 150;
const RETRY = [500, 1000, 2000, 4000, 8000];

export class Store extends EventTarget {
  brokers = new Map();
  topics = new Map();
  away = new Map(); // brokers that others take for dead, by name
  events = [];
  network = { configured: false, switches: [], links: [], places: [], trees: [] };
  decisions = { configured: false, trees: [], topics: [], history: [] };
  at = 0;
  seenFrom = "";
  complete = true;
  topicsTotal = 0;
  fault = null;
  connected = false;
  role = "viewer"; // what this user may: viewer, operator, administrator
  locked = false; // a name and a password are wanted
  times = [];
  totals = { published: [], received: [], delivered: [] };
  #rates = new Map();
  #turn = 0;
  #attempt = 0;
  #unlocked = () => {};

  // Say who looks, and try again.
  login(user, password) {
    sessionStorage.setItem("authorization", `Basic ${btoa(String.fromCharCode(...new TextEncoder().encode(`${user}:${password}`)))}`);
    this.#unlocked();
  }

  // Follow the broker for ever. It gives a ticket for the WebSocket, which cannot say who looks.
  async connect() {
    for (;;) {
      try {
        const { ticket, role } = await ask("/v1/login", "POST");
        this.role = role;
        this.locked = false;
        await this.#follow(ticket);
        if (this.#attempt > 2) this.fault = `The broker refuses the WebSocket: is ${location.origin} in web.origins?`;
      } catch (error) {
        this.fault = error.message;
        this.locked = error.status === 401;
      }
      this.connected = false;
      this.dispatchEvent(new Event("state"));
      if (this.locked) await new Promise((resolve) => { this.#unlocked = resolve; });
      else await new Promise((resolve) => setTimeout(resolve, RETRY[Math.min(this.#attempt++, RETRY.length - 1)]));
    }
  }

  // Until the WebSocket is closed.
  #follow(ticket) {
    const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/v1/live?ticket=${ticket}`);
    socket.binaryType = "arraybuffer";
    const decoder = new TextDecoder();
    socket.onmessage = (event) => {
      this.connected = true;
      this.#attempt = 0;
      this.apply(JSON.parse(decoder.decode(event.data)));
    };
    return new Promise((resolve) => { socket.onclose = resolve; });
  }

  apply(news) {
    if (news.full) {
      this.brokers.clear();
      this.topics.clear();
    }
    for (const row of news.brokers ?? []) this.brokers.set(row.name, row);
    for (const row of news.topics ?? []) this.topics.set(row.topic, row);
    for (const name of news.brokers_gone ?? []) this.brokers.delete(name);
    for (const topic of news.topics_gone ?? []) {
      this.topics.delete(topic);
      this.#rates.delete(topic);
    }
    if (news.away) this.away = new Map(news.away.map((row) => [row.name, row]));
    if (news.events) this.events = news.events;
    if (news.network) this.network = news.network;
    if (news.decisions) this.decisions = news.decisions;
    this.fault = news.fault ?? null;
    if (news.at) {
      this.seenFrom = news.seen_from;
      this.complete = news.complete;
      this.topicsTotal = news.topics_total;
      if (news.at !== this.at) this.#remember(news.at);
      this.at = news.at;
    }
    this.dispatchEvent(new Event("state"));
  }

  // Messages a second of a topic, for each of `times`; 0 where it was not known.
  history(topic) {
    const kept = this.#rates.get(topic);
    return this.times.map((_, i) => (kept ? kept[(this.#turn - this.times.length + i + HISTORY * 2) % HISTORY] : 0));
  }

  #remember(at) {
    const slot = this.#turn++ % HISTORY;
    this.times.push(at);
    const sums = { published: 0, received: 0, delivered: 0 };
    for (const row of this.brokers.values())
      for (const kind of Object.keys(sums)) sums[kind] += row[`${kind}_rate`];
    for (const kind of Object.keys(sums)) this.totals[kind].push(sums[kind]);
    if (this.times.length > HISTORY) for (const list of [this.times, ...Object.values(this.totals)]) list.shift();
    for (const [topic, kept] of this.#rates) kept[slot] = this.topics.get(topic)?.rate ?? 0;
    for (const row of this.topics.values()) {
      if (!row.rate || this.#rates.has(row.topic)) continue;
      const kept = new Float32Array(HISTORY);
      kept[slot] = row.rate;
      this.#rates.set(row.topic, kept);
    }
  }
}

// The answer of a path, for whoever has logged in. Throws an Error with the words of the problem.
export async function open(path, options = {}) {
  const headers = { "Saps-Page": "1", ...options.headers }, authorization = sessionStorage.getItem("authorization");
  if (authorization) headers.Authorization = authorization;
  const response = await fetch(path, { ...options, headers });
  if (response.ok) return response;
  const found = await response.json();
  throw Object.assign(new Error(found.detail ? `${found.title}: ${found.detail}` : found.title), { status: response.status });
}

// Server-sent events, read by hand: EventSource cannot say who asks.
export async function* events(path, signal) {
  const response = await open(path, { signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const data = part.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5)).join("\n");
      if (data) yield JSON.parse(data);
    }
  }
}

// The JSON at a path.
export async function ask(path, method = "GET", body = null) {
  const response = await open(path, { method, headers: { Accept: "application/json" }, body: body === null ? null : JSON.stringify(body) });
  return response.json();
}
