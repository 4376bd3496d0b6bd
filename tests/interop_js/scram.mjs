// Logs in with MQTT.js by SCRAM-SHA-256 (RFC 7677) in AUTH and publishes; prints whether the broker has proven to know
// the password, too, or why it refuses. Usage: node scram.mjs URL USER PASSWORD
import crypto from "node:crypto";
import mqtt from "mqtt";

const [url, user, password] = process.argv.slice(2);
const method = "SCRAM-SHA-256";
const bare = `n=${user},r=${crypto.randomBytes(18).toString("base64url")}`;
const hmac = (key, text) => crypto.createHmac("sha256", key).update(text).digest();
const data = (text) => ({ authenticationMethod: method, authenticationData: Buffer.from(text) });
let expected = "";

const client = mqtt.connect(url, { protocolVersion: 5, reconnectPeriod: 0, properties: data(`n,,${bare}`) });
client.handleAuth = (packet, done) => {
  const challenge = packet.properties.authenticationData.toString();
  const { r, s, i } = Object.fromEntries(challenge.split(",").map((part) => [part[0], part.slice(2)]));
  const salted = crypto.pbkdf2Sync(password, Buffer.from(s, "base64"), Number(i), 32, "sha256");
  const key = hmac(salted, "Client Key");
  const signed = `${bare},${challenge},c=biws,r=${r}`;
  const signature = hmac(crypto.createHash("sha256").update(key).digest(), signed);
  const proof = Buffer.from(key.map((byte, at) => byte ^ signature[at])).toString("base64");
  expected = `v=${hmac(hmac(salted, "Server Key"), signed).toString("base64")}`;
  done(null, { cmd: "auth", reasonCode: 24, properties: data(`c=biws,r=${r},p=${proof}`) });
};
client.on("connect", async (connack) => {
  await client.publishAsync("js", "x", { qos: 1, retain: true });
  console.log(connack.properties.authenticationData.toString() === expected);
  await client.endAsync();
});
client.on("error", (error) => {
  console.log(error.message);
  client.end(true);
});
