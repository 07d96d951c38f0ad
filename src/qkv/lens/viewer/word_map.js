// A map of words on a canvas, which thousands of words keep smooth: zoom and move by wheel, drag and keys.

import { make } from "./dom.js";
import { say } from "./language.js";
import { centred, placed, placeLabels, wholePlane, zoomed } from "./plane.js";

const [STEP, PAN, CLOSE, NEAR] = [1.4, 60, 14, 6]; // of a zoom, of a key, pixels within which a point is meant, zoom of a chosen word
const FONT = "14px system-ui, sans-serif";

/** A map; `choose(number)` is called with the word that somebody clicks on, null for none. */
export class WordMap {
  constructor({ words, neighbours, groups, choose }) {
    Object.assign(this, { words, neighbours, groups, choose, chosen: null, points: [] });
    this.canvas = make("canvas", { class: "word-map", tabindex: "0", role: "img", "aria-label": this.label() });
    this.pen = this.canvas.getContext("2d");
    this.wide = [];
    this.drag = null;
    this.listen();
  }

  label() {
    return say("A map of {count} words. Arrow keys move it, plus and minus zoom, 0 shows all; search to choose a word.", { count: this.words.length });
  }

  listen() {
    const canvas = this.canvas;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY / 400), [event.offsetX, event.offsetY]);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      this.drag = { x: event.offsetX, y: event.offsetY, view: this.view, far: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => {
      if (this.drag && !this.drag.far) this.choose(this.at(event.offsetX, event.offsetY));
      this.drag = null;
    });
    canvas.addEventListener("pointercancel", () => (this.drag = null));
    canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.resize()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  move(event) {
    if (!this.drag) {
      this.canvas.classList.toggle("on-word", this.at(event.offsetX, event.offsetY) !== null);
      return;
    }
    const { x, y, view } = this.drag;
    this.drag.far ||= Math.hypot(event.offsetX - x, event.offsetY - y) > 4;
    this.view = { ...view, left: view.left + event.offsetX - x, top: view.top + event.offsetY - y };
    this.draw();
  }

  key(event) {
    const moves = { ArrowLeft: [PAN, 0], ArrowRight: [-PAN, 0], ArrowUp: [0, PAN], ArrowDown: [0, -PAN] };
    if (event.key in moves) {
      const [across, down] = moves[event.key];
      this.view = { ...this.view, left: this.view.left + across, top: this.view.top + down };
      this.draw();
    } else if (event.key === "+" || event.key === "=") this.zoom(STEP);
    else if (event.key === "-") this.zoom(1 / STEP);
    else if (event.key === "0") this.showAll();
    else return;
    event.preventDefault();
  }

  /** Show the points of a method. */
  show(points) {
    this.points = points;
    this.showAll();
  }

  showAll() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    this.view = this.whole = wholePlane(this.points, width || 600, height || 500);
    this.draw();
  }

  zoom(factor, middle = [this.canvas.clientWidth / 2, this.canvas.clientHeight / 2]) {
    this.view = zoomed(this.view, factor, middle, this.whole);
    this.draw();
  }

  /** Highlight a word and its neighbours; bring it to the middle if it was searched for. */
  mark(number, centre) {
    this.chosen = number;
    if (number !== null && centre) {
      const closer = { ...this.view, scale: Math.max(this.view.scale, NEAR * this.whole.scale) };
      this.view = centred(closer, this.points[number], this.canvas.clientWidth, this.canvas.clientHeight);
    }
    this.draw();
  }

  /** The number of the word at a place of the canvas; null for none. */
  at(x, y) {
    let [found, least] = [null, CLOSE];
    this.points.forEach((point, n) => {
      const [across, down] = placed(this.view, point);
      const far = Math.hypot(across - x, down - y);
      if (far < least) [found, least] = [n, far];
    });
    return found;
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width || !this.points.length) return;
    const ratio = window.devicePixelRatio || 1;
    const untouched = this.view === this.whole;
    [this.canvas.width, this.canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (untouched) this.showAll();
    else this.draw();
    if (this.chosen !== null && untouched) this.mark(this.chosen, true);
  }

  draw() {
    const { pen, canvas } = this;
    const [width, height, ratio] = [canvas.clientWidth, canvas.clientHeight, window.devicePixelRatio || 1];
    if (!width || !this.view) return;
    const style = getComputedStyle(canvas);
    const colour = (name) => style.getPropertyValue(name);
    const near = new Set(this.chosen === null ? [] : this.neighbours[this.chosen].map(([n]) => n));
    const order = this.words.map((_, n) => n);
    const rank = (n) => (n === this.chosen ? 0 : near.has(n) ? 1 : 2);
    order.sort((one, two) => rank(one) - rank(two) || one - two);
    const spots = order.map((n) => [n, ...placed(this.view, this.points[n])]);
    const seen = spots.filter(([, x, y]) => x > -20 && y > -20 && x < width + 20 && y < height + 20);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = FONT;
    const tones = { marked: `rgb(${colour("--other")})`, point: `rgb(${colour("--ink")})`, text: colour("--text"), faded: colour("--faded") };
    this.drawLines(near, tones);
    for (const [n, x, y] of [...seen].reverse()) {
      pen.globalAlpha = this.chosen === null || rank(n) < 2 ? 1 : 0.35;
      pen.fillStyle = rank(n) < 2 || this.groups[n] % 2 ? tones.marked : tones.point;
      pen.beginPath();
      pen.arc(x, y, rank(n) === 0 ? 6 : rank(n) === 1 ? 4.5 : 3, 0, 7);
      pen.fill();
    }
    const wide = (n) => (this.wide[n] ??= pen.measureText(this.words[n]).width + 4);
    const labels = placeLabels(seen.map(([n, x, y]) => ({ x, y, wide: wide(n) })), width, height);
    pen.textBaseline = "middle";
    pen.globalAlpha = 1;
    seen.forEach(([n], place) => {
      if (!labels[place]) return;
      pen.fillStyle = this.chosen === null || rank(n) < 2 ? tones.text : tones.faded;
      pen.fillText(this.words[n], labels[place].left + 2, labels[place].top + 8);
    });
  }

  drawLines(near, tones) {
    if (this.chosen === null) return;
    const [x, y] = placed(this.view, this.points[this.chosen]);
    this.pen.strokeStyle = tones.marked;
    this.pen.globalAlpha = 0.7;
    for (const n of near) {
      this.pen.beginPath();
      this.pen.moveTo(x, y);
      this.pen.lineTo(...placed(this.view, this.points[n]));
      this.pen.stroke();
    }
  }
}
