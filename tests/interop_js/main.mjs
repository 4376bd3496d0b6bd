// The round trip in Node; prints its result. Usage: node main.mjs URL PROTOCOL_VERSION
import mqtt from "mqtt";
import { roundtrip } from "./roundtrip.mjs";

const [url, version] = process.argv.slice(2);
console.log(JSON.stringify(await roundtrip(mqtt, url, Number(version))));
