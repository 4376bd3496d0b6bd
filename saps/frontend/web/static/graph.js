// Graphs (cytoscape.js), in the page's colours.

import cytoscape from "/static/vendor/cytoscape.esm.min.mjs";
import { cssColor } from "/static/dom.js";

export const PALETTE = ["#4c8dff", "#e8833a", "#2bb673", "#c65bcf", "#d9a514", "#18a6b8", "#e05263", "#8a7bf0", "#7d9a2c", "#a8734a"];

const MOST_ZOOM = 1.6;
const captionOf = (zoom) => Math.max(7, Math.min(20, Math.round(11 / zoom)));

export function colorOf(index) {
  return PALETTE[index % PALETTE.length];
}

export class Graph {
  constructor(element, style, chosen) {
    this.element = element;
    this.style = style;
    this.caption = 10;
    this.cy = cytoscape({
      container: element, layout: { name: "preset" }, minZoom: 0.08, maxZoom: 4, boxSelectionEnabled: false,
      autoungrabify: true, pixelRatio: "auto", textureOnViewport: false, style: this.#sheet(),
    });
    this.cy.on("zoom", () => this.#caption());
    this.cy.on("tap", (event) => chosen(event.target === this.cy ? null : event.target));
    new ResizeObserver(() => this.fit()).observe(element);
  }

  recolor() {
    this.cy.style(this.#sheet());
  }

  fit() {
    this.cy.resize();
    if (!this.cy.elements().length || !this.element.clientWidth) return;
    this.cy.fit(undefined, 18);
    if (this.cy.zoom() > MOST_ZOOM) { this.cy.zoom(MOST_ZOOM); this.cy.center(); } // a few brokers need not fill the screen
  }

  // Make the elements be these, keyed by id; what is there already keeps its place on the screen.
  set(elements) {
    const wanted = new Map(elements.map((element) => [element.data.id, element]));
    let changed = false;
    this.cy.batch(() => {
      this.cy.elements().forEach((element) => {
        if (!wanted.has(element.id())) { element.remove(); changed = true; }
      });
      const fresh = [];
      for (const [id, element] of wanted) {
        const known = this.cy.getElementById(id);
        if (known.empty()) { fresh.push(element); changed = true; continue; }
        known.data(element.data);
        if (element.position && (known.position("x") !== element.position.x || known.position("y") !== element.position.y)) {
          known.position(element.position);
          changed = true;
        }
      }
      this.cy.add(fresh);
    });
    if (changed) this.fit();
  }

  // Captions are as large on the screen, within bounds, however far it is zoomed out.
  #caption() {
    const size = captionOf(this.cy.zoom());
    if (size === this.caption) return;
    this.caption = size;
    this.recolor();
  }

  #sheet() {
    const color = Object.fromEntries(["text", "dim", "line", "panel", "page", "accent", "ok", "warn", "bad", "ofm"].map((n) => [n, cssColor(n)]));
    return this.style({ ...color, caption: this.caption });
  }
}
