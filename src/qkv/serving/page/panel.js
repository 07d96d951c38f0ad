// Base of all panels: the choice of a model, progress messages and errors.

import { ApiError } from "./api.js";
import { make, rounded } from "./dom.js";

/** A panel of the page, and the models that have its ability. */
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
    for (const area of this.form.querySelectorAll("textarea")) area.addEventListener("keydown", (event) => this.submitByKey(event));
  }

  get model() {
    return this.models.find((model) => model.id === this.select.value);
  }

  /** Return the text of a field without surrounding spaces. */
  text(name) {
    return this.form.elements[name].value.trim();
  }

  chooser() {
    this.select = make("select", { name: "model" }, ...this.models.map((model) => make("option", { value: model.id }, model.id)));
    const [only, facts] = [make("b", { hidden: this.models.length > 1 }, this.models[0].id), make("span", { className: "facts" })];
    this.select.hidden = this.models.length === 1;
    const showFacts = () => facts.replaceChildren(this.model.parameters ? `${rounded(this.model.parameters)} parameters` : "");
    this.select.addEventListener("change", showFacts);
    showFacts();
    return make("label", { className: "model" }, make("span", {}, "Model"), this.select, only, facts);
  }

  choose(id) {
    this.select.value = id;
    this.select.dispatchEvent(new Event("change"));
  }

  submitByKey(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      this.form.requestSubmit();
    }
  }

  /** Run `work` whenever the form is submitted; abort the previous run if it is not finished. */
  onSubmit(work) {
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.text("text")) this.attempt(work);
      else this.showError(new ApiError("The text has nothing but spaces. Write something first.", 0));
    });
  }

  async attempt(work) {
    this.stop();
    const mine = (this.waiting = new AbortController());
    this.say(this.form.dataset.busy);
    this.section.classList.add("busy"); // not aria-busy: screen readers would then skip the progress message
    try {
      const message = await work(mine.signal);
      if (mine === this.waiting) this.say(message ?? "");
    } catch (error) {
      if (mine === this.waiting) this.showError(error);
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

  showError(error) {
    if (error.name === "AbortError") return this.say("Stopped.");
    if (error.status === undefined) console.error(error);
    this.message.classList.add("error");
    this.message.replaceChildren(error.status === undefined ? "Something went wrong on this page. Reload it and try again." : error.message);
    if (error.status === 401) document.dispatchEvent(new CustomEvent("key-needed"));
  }
}
