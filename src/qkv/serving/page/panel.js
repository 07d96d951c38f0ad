// A panel: what one view of a model needs from a person, and its result.
//
// A view is a plain object. `fields(model)` names what a person fills in, `build(panel)` returns the elements of the result, and
// `run(panel, values, signal)` asks the server and shows the answer; it may return a message.

import { button, make } from "../viewer/dom.js";
import { say } from "../viewer/language.js";
import { ApiError } from "./api.js";
import { describe } from "./describe.js";
import { exampleRow } from "./examples.js";
import { fieldElements, readField, writeField } from "./fields.js";
import { Runner } from "./live.js";

const LONG = 1500; // characters of a text that is sent by a button only
const SLOW = 2500; // ms of an answer, likewise

export class Panel {
  /** `onChange(values, isStep)` is called when the values of the fields change. */
  constructor(model, view, onChange) {
    [this.model, this.view, this.onChange] = [model, view, onChange];
    this.fields = view.fields(model);
    this.see = ""; // state of the viewer, as in the address
    this.shown = null; // the values that the result is for
    this.isSlow = view.live === false;
    this.runner = new Runner((signal) => this.attempt(signal), view.typing);
    this.section = this.draw();
    this.showLive();
  }

  draw() {
    const { id, name, lead, action } = this.view;
    this.title = make("h1", { id: `${id}-title`, tabindex: "-1" }, say(name));
    this.message = make("p", { class: "message", role: "status" });
    this.button = make("button", { class: "primary run" }, say(action));
    const isTyped = this.fields.some(({ kind }) => kind !== "choice");
    this.hint = isTyped ? make("span", { class: "hint live-hint" }, say("Follows what you type.")) : null;
    const actions = make("div", { class: "actions" }, exampleRow(this), this.hint, ...(this.view.buttons?.(this) ?? []), this.button);
    this.form = make("form", { novalidate: "" }, ...fieldElements(this), actions, this.message);
    this.result = make("div", { class: "result", hidden: "" });
    this.result.append(...this.view.build(this));
    this.listen();
    return make("section", { id, class: "panel-of-view" },
      this.title, make("p", { class: "lead" }, say(lead)), describe(this.model), this.form, this.result);
  }

  listen() {
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.runNow();
    });
    this.form.addEventListener("input", () => {
      this.onChange(this.values(), false);
      this.showLive();
      if (this.isLive()) this.runner.later();
    });
    this.form.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      this.runNow();
    });
  }

  /** The first field, most often the text; undefined for a view without fields. */
  get first() {
    return this.form.elements[this.fields[0]?.name];
  }

  /** What stands in the fields, without surrounding spaces, and the viewer's state. */
  values() {
    const given = this.fields.map((field) => [field.name, readField(this, field)]);
    return { ...Object.fromEntries(given), see: this.see };
  }

  /** Fill in the fields; those without a value get their default. */
  fill(values) {
    for (const field of this.fields) writeField(this, field, values[field.name] ?? field.value ?? "");
    this.see = values.see ?? "";
    this.showLive();
  }

  isLive() {
    return !this.isSlow && this.fields.reduce((sum, { name }) => sum + this.form.elements[name].value.length, 0) <= LONG;
  }

  showLive() {
    this.form.classList.toggle("live", this.isLive());
  }

  /** Run for what stands in the fields, unless that is shown already. */
  refresh() {
    if (this.shown !== JSON.stringify({ ...this.values(), see: "" })) this.runner.now();
  }

  /** Run because a person asked for it: the result comes into sight. */
  async runNow() {
    this.isAsked = true;
    if (document.activeElement === this.button) this.first?.focus({ preventScroll: true });
    return this.runner.now();
  }

  async attempt(signal) {
    const [values, isAsked] = [this.values(), this.isAsked];
    this.isAsked = false;
    const missing = this.fields.find((field) => !field.optional && !values[field.name]);
    if (missing) {
      this.tell(this.clear());
      if (isAsked) this.showError(new ApiError(say(missing.missing ?? "The text has nothing but spaces. Write something first.")));
      return;
    }
    const started = performance.now();
    this.section.classList.add("busy"); // not aria-busy: screen readers would then skip the progress message
    if (isAsked || this.result.hidden) this.tell(say(this.view.busy));
    try {
      const message = await this.view.run(this, values, signal);
      this.shown = JSON.stringify({ ...values, see: "" });
      this.tell(message ?? "");
      if (isAsked) this.bringIntoSight();
    } catch (error) {
      this.showError(error);
    } finally {
      this.section.classList.remove("busy");
      this.isSlow = this.view.live === false || (!this.view.typing?.stoppable && performance.now() - started > SLOW);
      this.showLive();
    }
  }

  /** Show the result: views call this when they have one. */
  show() {
    this.result.hidden = false;
  }

  /** Show no result; return the reason, for a message. */
  clear(reason = "") {
    this.result.hidden = true;
    return reason;
  }

  bringIntoSight() {
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const { top } = this.result.getBoundingClientRect();
    if (this.result.hidden || top < innerHeight * 0.6) return;
    this.form.scrollIntoView({ behavior: calm ? "auto" : "smooth", block: "start" });
  }

  tell(text) {
    this.message.classList.remove("error");
    this.message.replaceChildren(text);
  }

  showError(error) {
    if (error.name === "AbortError") return this.tell(this.runner.again ? "" : say("Stopped."));
    if (error.status === undefined) console.error(error);
    if (error.status === 429) this.isSlow = true;
    this.message.classList.add("error");
    this.message.replaceChildren(error.status === undefined ? say("Something went wrong on this page. Reload it and try again.") : error.message);
    if (error.status === 401) this.message.append(" ", button({ onclick: () => this.runNow() }, say("Give the key")));
    return undefined;
  }
}
