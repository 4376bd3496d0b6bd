// Lines over time (uPlot), in the page's colours.

import uPlot from "/static/vendor/uPlot.esm.js";
import { cssColor, h } from "/static/dom.js";
import { short } from "/static/format.js";

export class Chart {
  #plot = null;
  #lines;
  #data = null;

  // lines: [{ label, color }], color: a name of the style sheet.
  constructor(lines, height = 130) {
    this.#lines = lines;
    this.height = height;
    this.element = h("div.chart", { hidden: true });
    new ResizeObserver(() => this.#resize()).observe(this.element);
  }

  set(times, series) {
    this.#data = [times, ...series];
    this.element.hidden = times.length < 2;
    if (this.#plot) this.#plot.setData(this.#data);
    else this.#draw();
  }

  recolor() {
    this.#plot?.destroy();
    this.#plot = null;
    this.#draw();
  }

  #resize() {
    const width = this.element.clientWidth;
    if (!width) return;
    if (this.#plot) this.#plot.setSize({ width, height: this.height });
    else this.#draw();
  }

  #draw() {
    const width = this.element.clientWidth;
    if (!width || !this.#data || this.#data[0].length < 2) return;
    const axis = { stroke: cssColor("dim"), grid: { stroke: cssColor("line"), width: 1 }, ticks: { show: false } };
    const two = (number) => String(number).padStart(2, "0");
    const clock = (at) => { const d = new Date(at * 1000); return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`; };
    this.#plot = new uPlot({
      width, height: this.height, cursor: { y: false }, legend: { show: this.#lines.length > 1, live: false },
      scales: { y: { range: (_, low, high) => [0, Math.max(1, high * 1.15)] } },
      axes: [
        { ...axis, size: 26, space: 90, values: (_, splits) => splits.map(clock) },
        { ...axis, size: 44, space: 28, values: (_, splits) => splits.map((v) => short(v)) },
      ],
      series: [{}, ...this.#lines.map(({ label, color }) => ({
        label, stroke: cssColor(color), width: 1.75, fill: this.#lines.length === 1 ? `${cssColor(color)}22` : undefined,
        points: { show: false },
      }))],
    }, this.#data, this.element);
  }
}
