// Publishes and subscribes with MQTT.js over any transport, in Node and in a browser alike (roundtrip.html).
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

// The JSON document of what came back. `mqtt`: the library; `url`: the broker; `version`: 4 or 5.
export async function roundtrip(mqtt, url, version) {
  const options = { protocolVersion: version, reconnectPeriod: 0 };
  const result = {};
  const subscriber = await mqtt.connectAsync(url, { ...options, clientId: "js-sub" });
  const next = inbox(subscriber);
  result.granted = (await subscriber.subscribeAsync({ "a/0": { qos: 0 }, "a/+": { qos: 2 } })).map((g) => g.qos);

  const will = { topic: "a/will", payload: "bye", qos: 1, retain: false };
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
  return result;
}
