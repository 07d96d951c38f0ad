// Work that follows what a person types: one run at a time, and the newest input wins.

const PAUSE = 350; // ms without a key before a run

export class Runner {
  /** `work(signal)` must settle soon after its signal is aborted; a `stoppable` one is stopped by newer input. */
  constructor(work, { pause = PAUSE, stoppable = false } = {}) {
    this.work = work;
    this.pause = pause;
    this.stoppable = stoppable;
    this.running = null; // the controller of the run
    this.again = false;
  }

  /** Run after a pause in typing, and after the present run. */
  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.start(this.stoppable), this.pause);
  }

  /** Run at once, instead of the present run. */
  now() {
    clearTimeout(this.timer);
    return this.start(true);
  }

  /** End the present run, and start none. */
  stop() {
    clearTimeout(this.timer);
    this.again = false;
    this.running?.abort();
  }

  async start(instead) {
    if (this.running) {
      this.again = true;
      if (instead) this.running.abort();
      return;
    }
    do {
      this.again = false;
      this.running = new AbortController();
      await this.work(this.running.signal);
      this.running = null;
    } while (this.again);
  }
}
