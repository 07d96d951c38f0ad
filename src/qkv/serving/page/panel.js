// What all panels share: which model is asked, what is said while one waits, and what is said when it goes wrong.

import { Problem } from "./ask.js";
import { make, rounded } from "./dom.js";

/** A panel of the page and the models that can do its work. */
export class Panel {
  constructor(id, models) {
    this.section = document.getElementById(id);
    this.form = this.section.querySelector("form");
    this.result = this.section.querySelector(".result");
    this.models = models;
    this.message = make("div", { className: "message", ariaLive: "polite" });
    this.button = this.form.querySelector("button[type=submit]");
    this.waiting = null;
    this.form.querySelector(".actions").after(this.message);
    this.form.prepend(this.chooser());
    for (const area of this.form.querySelectorAll("textarea")) area.addEventListener("keydown", (event) => this.sendByKey(event));
  }

  get model() {
    return this.models.find((model) => model.id === this.select.value);
  }

  /** The text of a field, without spaces around it. */
  text(name) {
    return this.form.elements[name].value.trim();
  }

  chooser() {
    this.select = make("select", { name: "model" }, ...this.models.map((model) => make("option", { value: model.id }, model.id)));
    const [only, facts] = [make("b", { hidden: this.models.length > 1 }, this.models[0].id), make("span", { className: "facts" })];
    this.select.hidden = this.models.length === 1;
    const tell = () => facts.replaceChildren(this.model.parameters ? `${rounded(this.model.parameters)} weights` : "");
    this.select.addEventListener("change", tell);
    tell();
    return make("label", { className: "model" }, make("span", {}, "Model"), this.select, only, facts);
  }

  choose(id) {
    this.select.value = id;
    this.select.dispatchEvent(new Event("change"));
  }

  sendByKey(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      this.form.requestSubmit();
    }
  }

  /** Do some work whenever the form is sent; what was asked before and is not answered yet is given up. */
  onAsk(work) {
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.text("text")) this.attempt(work);
      else this.complain(new Problem("There is nothing but spaces. Write something first.", 0));
    });
  }

  async attempt(work) {
    this.stop();
    const mine = (this.waiting = new AbortController());
    this.say(this.form.dataset.busy);
    this.section.classList.add("busy"); // not aria-busy: readers would keep from saying that one has to wait
    try {
      const said = await work(mine.signal);
      if (mine === this.waiting) this.say(said ?? "");
    } catch (error) {
      if (mine === this.waiting) this.complain(error);
    } finally {
      if (mine === this.waiting) this.section.classList.remove("busy");
    }
  }

  stop() {
    this.waiting?.abort();
  }

  say(text) {
    this.message.classList.remove("error");
    this.message.replaceChildren(text);
  }

  complain(error) {
    if (error.name === "AbortError") return this.say("Stopped.");
    if (error.status === undefined) console.error(error);
    this.message.classList.add("error");
    this.message.replaceChildren(error.status === undefined ? "Something went wrong on this page. Reload it and try again." : error.message);
    if (error.status === 401) document.dispatchEvent(new CustomEvent("key-wanted"));
  }
}
