// Publish and subscribe from a page: by HTTP, WebSocket, and server-sent events.

const by = (id) => document.getElementById(id);
const path = (topic) => topic.split("/").map(encodeURIComponent).join("/");

// ---- publish by HTTP: one request, and its answer says whom the message has reached

by("publish").onsubmit = async (event) => {
  event.preventDefault();
  const query = new URLSearchParams({ qos: by("qos").value, retain: by("retain").checked });
  const response = await fetch(`/v1/topics/${path(by("topic").value)}?${query}`, {
    method: "POST",
    headers: { "Content-Type": "text/plain" },
    body: by("payload").value,
  });
  say("published", await response.json());
};

// ---- publish and subscribe by WebSocket: messages both ways, each a JSON object

let socket = null;
let asked = 0;

function opened() {
  if (socket?.readyState === WebSocket.OPEN) return Promise.resolve(socket);
  return new Promise((resolve, reject) => {
    const address = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/v1/socket`;
    socket = new WebSocket(address, "saps-json");
    socket.onopen = () => resolve(socket);
    socket.onerror = () => reject(new Error("no WebSocket"));
    socket.onmessage = (event) => {
      const told = JSON.parse(event.data);
      if (told.op === "message") {
        show(told, "WebSocket");
        if (told.qos) socket.send(JSON.stringify({ op: "ack", message: told.message })); // it is ours now
      } else if (told.op === "subscribed") say("subscribed", told);
      else if (told.op !== "welcome") say("published", told);
    };
  });
}

by("publish-socket").onclick = async () => {
  const message = { op: "publish", id: ++asked, topic: by("topic").value, payload: by("payload").value, qos: Number(by("qos").value), retain: by("retain").checked };
  (await opened()).send(JSON.stringify(message));
};

// ---- subscribe: by the WebSocket, or by server-sent events, which a browser takes up again by itself

by("subscribe").onsubmit = async (event) => {
  event.preventDefault();
  const filter = by("filter").value;
  if (by("way").value === "socket") {
    (await opened()).send(JSON.stringify({ op: "subscribe", id: ++asked, filters: [{ filter, qos: 1 }] }));
    return;
  }
  const events = new EventSource(`/v1/events?${new URLSearchParams({ filter, qos: 1 })}`);
  events.onopen = () => say("subscribed", { op: "subscribed", granted: [{ filter, qos: 1 }] });
  events.onmessage = (event) => show(JSON.parse(event.data), "events");
};

// ---- what the page shows

function show(message, way) {
  const item = document.createElement("li");
  for (const text of [message.topic, message.payload ?? `${message.data} (base64)`, `QoS ${message.qos ?? 0} by ${way}${message.retain ? ", retained" : ""}`])
    item.append(Object.assign(document.createElement("span"), { textContent: text }));
  by("messages").prepend(item);
}

function say(id, told) {
  const refused = told.granted?.find((grant) => grant.refused);
  if (refused) by(id).value = `${refused.filter}: ${refused.refused}`;
  else if (told.granted) by(id).value = `Subscribed to ${told.granted[0].filter}.`;
  else if (told.title) by(id).value = told.detail ? `${told.title}: ${told.detail}` : told.title;
  else if (told.reason) by(id).value = `${told.reason}: ${told.subscribers} subscribers, ${told.brokers} other brokers.`;
  else by(id).value = "Sent. With QoS 0 nothing is told.";
}
