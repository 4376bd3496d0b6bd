// Numbers as people read them.

const whole = new Intl.NumberFormat("en");

export function count(value) {
  return whole.format(Math.round(value));
}

export function rate(value) {
  if (!value) return "0";
  if (value < 0.1) return "<0.1";
  if (value < 100) return value.toFixed(1);
  if (value < 10_000) return whole.format(Math.round(value));
  return short(value);
}

export function short(value) {
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (value >= size) return `${(value / size).toFixed(value >= 10 * size ? 0 : 1)} ${unit}`;
  return rate(value);
}

export function bytes(value) {
  for (const [size, unit] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]])
    if (value >= size) return `${(value / size).toFixed(value >= 10 * size ? 0 : 1)} ${unit}`;
  return `${Math.round(value)} B`;
}

export function seconds(value) {
  return value < 1 ? `${Math.round(value * 1000)} ms` : `${value.toFixed(value < 10 ? 1 : 0)} s`;
}

export function duration(value) {
  const days = Math.floor(value / 86400), hours = Math.floor((value % 86400) / 3600);
  const minutes = Math.floor((value % 3600) / 60);
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  return minutes ? `${minutes} min` : `${Math.floor(value)} s`;
}

export function clock(at) {
  return new Date(at * 1000).toLocaleTimeString("en-GB");
}

export function dpid(value) {
  const text = value.replace(/^0+/, "");
  return text || "0";
}

export function plural(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}

// What an action has changed, such as "rules 1 → 2", without values that say nothing.
export function changes(before, after) {
  const [old, now] = [before, after].map((each) => (each && typeof each === "object" ? each : { "": each }));
  const text = (name, value) => {
    if (value === null || value === undefined || value === false || value === "") return "";
    if (name === "until") return new Date(value * 1000).toLocaleString("en-GB");
    return value === true ? "yes" : typeof value === "string" ? value : JSON.stringify(value);
  };
  return [...new Set([...Object.keys(old), ...Object.keys(now)])].flatMap((name) => {
    const [was, is] = [text(name, old[name]), text(name, now[name])];
    return was === is ? [] : [`${name} ${was && is ? `${was} → ${is}` : is || `was ${was}`}`.trim()];
  });
}
