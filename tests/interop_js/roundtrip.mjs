// Publishes and subscribes with MQTT.js; prints one JSON document of what came back.
// Usage: node roundtrip.mjs PORT PROTOCOL_VERSION
import mqtt from "mqtt";

const [port, version] = process.argv.slice(2).map(Number);
const url = `mqtt://127.0.0.1:${port}`;
const options = { protocolVersion: version, reconnectPeriod: 0 };

function inbox(client) {
  const messages = [];
  const waiting = [];
  client.on("message", (topic, payload, packet) => {
    const message = { topic, payload: payload.toString(), qos: packet.qos, retain: packet.retain };
    if (packet.properties) message.properties = packet.properties;
    if (waiting.length) waiting.shift()(message);
    else messages.push(message);
  });
  return () => (messages.length ? messages.shift() : new Promise((resolve) => waiting.push(resolve)));
}

const result = {};
const subscriber = await mqtt.connectAsync(url, { ...options, clientId: "js-sub" });
const next = inbox(subscriber);
result.granted = (await subscriber.subscribeAsync({ "a/0": { qos: 0 }, "a/+": { qos: 2 } })).map((g) => g.qos);

const will = { topic: "a/will", payload: Buffer.from("bye"), qos: 1, retain: false };
const publisher = await mqtt.connectAsync(url, { ...options, clientId: "js-pub", will });
result.messages = [];
for (const qos of [0, 1, 2]) {
  const properties = version === 5 ? { userProperties: { key: "value" }, contentType: "text" } : undefined;
  await publisher.publishAsync("a/x", `m${qos}`, { qos, properties });
  result.messages.push(await next());
}
await publisher.publishAsync("kept", "still here", { qos: 1, retain: true });
publisher.stream.destroy();
result.will = await next();

await subscriber.subscribeAsync("kept", { qos: 1 });
result.retained = await next();
await subscriber.unsubscribeAsync("kept");
await subscriber.endAsync();
console.log(JSON.stringify(result));
