// The answers that somebody has given, and their points; they stay in the page and are gone when it is closed.

const FULL = 2; // points for an answer that is right at once
const HELPED = 1; // for one after a hint or a wrong one

export class Answers {
  constructor(examples) {
    this.given = new Map();
    this.onChange = () => {};
    examples.forEach((example, n) => {
      for (const step of example.steps) {
        for (const question of step.questions) {
          this.given.set(this.key(n, step, question), { done: false, shown: false, helped: false, tried: [], points: 0 });
        }
      }
    });
  }

  key(example, step, question) {
    return `${example} ${step.name} ${question.name}`;
  }

  /** The answers of one step: `get(question)`, `right(question)`, `wrong(question, tried)`, `help(question)`, `reveal(question)`. */
  of(example, step) {
    const get = (question) => this.given.get(this.key(example, step, question));
    const change = (question, values) => {
      Object.assign(get(question), values);
      this.onChange();
    };
    return {
      get,
      known: (name) => name === null || name === undefined || get({ name }).done,
      right: (question) => change(question, { done: true, points: get(question).helped ? HELPED : FULL }),
      wrong: (question, tried) => change(question, { helped: true, tried: [...get(question).tried, tried] }),
      help: (question) => change(question, { helped: true }),
      reveal: (question) => change(question, { done: true, shown: true }),
    };
  }

  finished(example, step) {
    return step.questions.every((question) => this.given.get(this.key(example, step, question)).done);
  }

  /** The points of an example, and how many there are to get. */
  points(example) {
    const all = [...this.given].filter(([key]) => key.startsWith(`${example} `)).map(([, answer]) => answer);
    return { points: all.reduce((sum, one) => sum + one.points, 0), all: FULL * all.length };
  }
}
