"use strict";
// Draws the values of `AttentionView.json()`: QkvViewer.show(element, attention). No framework, no network. Everything from a text or
// a model becomes a text node, never markup, and styles are set one by one, so that a strict content security policy holds.

(function () {
  const MAX_CELLS = 6400; // of a table; a larger one is left out
  const MIN_SHARE = 0.01; // least share that is listed
  const SVG = "http://www.w3.org/2000/svg";

  const ABOUT = {
    alignment:
      "Which words of the source the model attended to while it wrote each word. Point at a word: the thicker a line, " +
      "the more attention.",
    heads:
      "Each square is one attention head: a row is the word that attends, a column the word that it attends to, and more " +
      "colour is more attention. Open a square to read it.",
    mean: "All heads and layers of this part averaged into one.",
    rollout:
      "Attention through all layers: the share of each input word in each position after the last layer.",
    patterns:
      "Some heads follow one simple pattern. These were found in this text; the number is the share of the head's attention " +
      "that follows it.",
    attribution:
      "How much each word contributed to the output (gradient × input). Blue words support it, orange ones oppose it.",
    positions:
      "Attention alone does not know the order of words. So an encoding of its position is added to each word: one row for " +
      "each position.",
    points:
      "Every token has a vector, its embedding. Here the vectors are projected to a plane: similar tokens lie close together.",
  };
  const MARKS = {
    "<s>": "where a text begins",
    "[CLS]": "where a text begins; often stands for all of it",
    "</s>": "where a text ends",
    "[SEP]": "where a text, or a part of it, ends",
    "[MASK]": "a hidden word, to be predicted",
    "<unk>": "a text that the vocabulary has no token for",
  };
  const PATTERNS = {
    previous: "The token before",
    next: "The token after",
    self: "Itself",
    first: "The first token",
    separator: "The end of the text",
    "in order": "In order",
    "same word": "The same word",
    repeated: "Repetition",
  };
  const SHOWN = 8; // heads per pattern that are listed at once
  const DRAWN = 0.15; // least share of a word's attention for a line
  const LINKED = 0.05; // and for a line of the word under the pointer

  // Small helpers

  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }

  function draw(tag, attributes, ...children) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  const bold = (text) => make("b", { dir: "auto" }, text);
  const words = (text) => make("span", { class: "text", dir: "auto" }, text);
  const small = (text) => make("span", { class: "which" }, text);
  const button = (attributes, ...children) => make("button", { type: "button", ...attributes }, ...children);
  const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
  const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
  const highest = (matrix) => matrix.reduce((most, row) => row.reduce((a, b) => Math.max(a, b), most), 0) || 1;

  function mean(matrices) {
    return matrices[0].map((row, t) => row.map((_, s) => matrices.reduce((sum, one) => sum + one[t][s], 0) / matrices.length));
  }

  /** One element of several has the focus; arrow keys, Home and End move it. `columns` gives a table's width. */
  function roving(container, elements, columns) {
    const focus = (position) => {
      if (!elements[position]) return false;
      elements.forEach((element, n) => element.setAttribute("tabindex", n === position ? "0" : "-1"));
      elements[position].focus();
      return true;
    };
    elements.forEach((element, n) => element.setAttribute("tabindex", n ? "-1" : "0"));
    container.addEventListener("keydown", (event) => {
      const here = elements.indexOf(event.target);
      if (here < 0) return;
      const width = columns || elements.length;
      const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns || 1, ArrowUp: -(columns || 1) };
      const ends = { Home: here - (here % width), End: here - (here % width) + width - 1 };
      const position = event.key in steps ? here + steps[event.key] : ends[event.key];
      if (position !== undefined && focus(position)) event.preventDefault();
    });
  }

  // Tokens and words

  function bare(token) {
    return token.replace(/^(▁|##)/, "") || "␣";
  }

  /** The words or tokens of a text; special tokens such as <s> are always by themselves. */
  function itemsOf(attention, side, unit) {
    const words = attention[`${side}_words`];
    const list = [];
    attention[side].forEach((token, position) => {
      const word = words[position];
      const last = list[list.length - 1];
      if (unit === "words" && word !== null && last && last.word === word) return void last.positions.push(position);
      const inside = unit === "tokens" && word !== null && position > 0 && words[position - 1] === word;
      const text = word === null ? token : unit === "words" ? attention.words[side][word] : bare(token);
      list.push({ word, text, inside, mark: word === null, positions: [position] });
    });
    return list;
  }

  /** Weights between items: the sum over the attended tokens, the mean over the attending ones. */
  function gathered(matrix, rows, columns) {
    return rows.map((row) =>
      columns.map((column) => {
        let sum = 0;
        for (const t of row.positions) for (const s of column.positions) sum += matrix[t][s];
        return sum / row.positions.length;
      }),
    );
  }

  /** Whether some words are several tokens. */
  function inPieces(attention) {
    return ["source", "target"].some((side) => {
      const numbers = (attention[`${side}_words`] || []).filter((word) => word !== null);
      return new Set(numbers).size < numbers.length;
    });
  }

  const firstUnit = (attention) => (inPieces(attention) && attention.words.source.length > 2 ? "words" : "tokens");

  function topItems(items, weights) {
    const best = items.map((item, n) => [item.text, weights[n]]).filter(([, weight]) => weight >= MIN_SHARE);
    best.sort((a, b) => b[1] - a[1]);
    return best.slice(0, 4).map(([text, weight]) => `${text} ${percent(weight)}`).join(", ") || "nothing in particular";
  }

  // Words as buttons, a heat map as a table, a small one as a picture

  function chip(item, attributes) {
    const classes = `chip${item.mark ? " mark" : ""}${item.inside ? " inside" : ""}`;
    const all = { class: classes, dir: "auto", title: MARKS[item.text], ...attributes };
    return attributes ? button(all, item.text) : make("span", all, item.text);
  }

  function shade(element, share, against) {
    element.style.setProperty("--share", share.toFixed(3));
    element.classList.toggle("strong", share > 0.55);
    element.classList.toggle("against", Boolean(against));
  }

  function wordLine(items, label, choose) {
    const line = make("div", { class: "line", role: "group", "aria-label": label });
    const chips = items.map((item, n) => {
      const chosen = () => choose(n);
      return chip(item, choose && { "aria-pressed": "false", onclick: chosen, onmouseenter: chosen, onfocus: chosen });
    });
    line.append(...chips);
    if (choose) roving(line, chips);
    return { line, chips };
  }

  /** A small heat map; the quantile `full` of the numbers and all above it have the full colour. */
  function picture(matrix, element, full = 1) {
    const canvas = make("canvas", { class: "heat", "aria-hidden": "true" });
    canvas.width = matrix[0].length;
    canvas.height = matrix.length;
    const paint = () => {
      const ink = getComputedStyle(element).getPropertyValue("--ink").trim().split(/\s+/).map(Number);
      const against = getComputedStyle(element).getPropertyValue("--other").trim().split(/\s+/).map(Number);
      const sizes = matrix.flat().map(Math.abs).sort((a, b) => a - b);
      const most = sizes[Math.floor(full * (sizes.length - 1))] || 1;
      const image = new ImageData(canvas.width, canvas.height);
      matrix.flat().forEach((value, n) => {
        const [r, g, b] = value < 0 ? against : ink;
        image.data.set([r, g, b, Math.round(255 * Math.min(1, Math.pow(Math.abs(value) / most, 0.8)))], 4 * n);
      });
      canvas.getContext("2d").putImageData(image, 0, 0);
    };
    whenThemeChanges(element, paint);
    return canvas;
  }

  let painters = []; // elements on the page, and the functions that repaint them in other colours

  function whenThemeChanges(element, paint) {
    painters.push([element, paint]);
    requestAnimationFrame(() => {
      painters = painters.filter(([one]) => one.isConnected);
      paint();
    });
  }

  const repaint = () => painters.forEach(([, paint]) => paint());

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  new MutationObserver(repaint).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });

  function table(weights, rows, columns, label, choose) {
    const most = highest(weights);
    const cells = [];
    const grid = make("table", { role: "grid", "aria-label": label });
    const named = (item) => make("span", { class: item.mark ? "mark" : null }, item.text);
    const heading = (item, scope) => make("th", { scope, title: item.text }, named(item));
    const corner = make("th", { scope: "col", "aria-label": "attending word" });
    grid.append(make("thead", {}, make("tr", {}, corner, ...columns.map((item) => heading(item, "col")))));
    const body = rows.map((row, t) => {
      const line = columns.map((column, s) => {
        const says = `${row.text} → ${column.text}: ${weights[t][s].toFixed(3)}`;
        const chosen = () => choose(t, s);
        const cell = make("td", { title: says, "aria-label": says, onfocus: chosen, onmouseenter: chosen });
        cell.style.setProperty("--share", Math.pow(weights[t][s] / most, 0.8).toFixed(3));
        cells.push(cell);
        return cell;
      });
      return make("tr", {}, heading(row, "row"), ...line);
    });
    grid.append(make("tbody", {}, ...body));
    roving(grid, cells, columns.length);
    const scale = make("p", { class: "scale" }, "0", make("span", { class: "ramp", "aria-hidden": "true" }), percent(most));
    return make("div", {}, make("div", { class: "scroll", tabindex: "-1" }, grid), scale);
  }

  // One matrix in detail: words to point at, and the table of all weights

  const LOOKS = { target: "While writing", read: "Having read", source: "Attending" };

  function detail(attention, matrix, sides, unit) {
    const [rows, columns] = sides.map((side) => itemsOf(attention, side, unit));
    const same = sides[0] === sides[1];
    const weights = gathered(matrix, rows, columns);
    const says = make("p", { class: "says", "aria-live": "polite" });
    const choose = (row, column) => {
      const most = Math.max(...weights[row]) || 1;
      from.chips.forEach((one, n) => one.setAttribute("aria-pressed", String(n === row)));
      to.chips.forEach((one, n) => shade(one, weights[row][n] / most));
      const one = () => `${columns[column].text} ${percent(weights[row][column])}`;
      const seen = column === undefined ? topItems(columns, weights[row]) : one();
      says.replaceChildren(bold(rows[row].text), ` ${same ? "attends" : "attended"} to: ${seen}`);
    };
    const from = wordLine(rows, "Attending words: choose one", (row) => choose(row));
    const to = same ? from : wordLine(columns, "Attended words");
    const lines = [make("div", { class: "pointing" }, same ? null : small(LOOKS[sides[0]]), from.line)];
    if (!same) lines.push(make("div", { class: "pointing" }, small("it attended to"), to.line));
    const start = rows.findIndex((row) => !row.mark);
    choose(Math.max(0, start));
    const large = rows.length * columns.length > MAX_CELLS;
    const all = large
      ? make("p", { class: "about" }, "The table of all weights is left out for a text of this length.")
      : table(weights, rows, columns, "All weights", choose);
    const hint = make("p", { class: "hint" }, "Point at a word, or use the arrow keys.");
    return make("div", { class: "detail" }, hint, ...lines, says, all);
  }

  // The parts of the page

  /** Links between items of both texts, [source, target, share of the target's attention], from the mean of all heads. */
  function linksOf(attention, sides) {
    const across = attention.maps.filter((one) => one.part === "cross").flatMap((one) => one.heads);
    return gathered(mean(across), sides[1], sides[0]).flatMap((row, t) => {
      const sum = row.reduce((a, b) => a + b, 0) || 1;
      return row.map((weight, s) => [s, t, weight / sum]).filter((link) => link[2] >= LINKED);
    });
  }

  function alignmentPanel(attention, state) {
    const box = make("div", { class: "alignment" });
    const sides = ["source", "target"].map((side) => itemsOf(attention, side, state.unit).filter((item) => !item.mark));
    const links = linksOf(attention, sides);
    const lines = draw("svg", { "aria-hidden": "true" });
    const says = make("p", { class: "says", "aria-live": "polite" });
    let active = null;
    const choose = (side, word) => {
      active = [side, word];
      const found = links.filter((link) => link[side] === word).sort((a, b) => b[2] - a[2]);
      rows.forEach((row, n) =>
        row.chips.forEach((one, m) => {
          shade(one, 0);
          one.setAttribute("aria-pressed", String(n === side && m === word));
        }),
      );
      found.forEach((link) => shade(rows[1 - side].chips[link[1 - side]], link[2] / found[0][2]));
      const others = found.slice(0, 4).map((link) => `${sides[1 - side][link[1 - side]].text} ${percent(link[2])}`);
      const said = side ? " attended to: " : " was attended to by: ";
      says.replaceChildren(bold(sides[side][word].text), said + (others.join(", ") || "no word in particular"));
      join();
    };
    const rows = sides.map((items, side) =>
      wordLine(items, side ? "Translation: choose a word" : "Source: choose a word", (n) => choose(side, n)),
    );
    const end = (one, first, frame, down) => {
      const r = one.getBoundingClientRect();
      if (down) return [(first ? r.right : r.left) - frame.left, r.top + r.height / 2 - frame.top];
      return [r.left + r.width / 2 - frame.left, (first ? r.bottom : r.top) - frame.top];
    };
    const join = () => {
      const frame = box.getBoundingClientRect();
      const down = box.classList.contains("down");
      lines.setAttribute("width", frame.width);
      lines.setAttribute("height", frame.height);
      const lit = (link) => active !== null && link[active[0]] === active[1];
      const paths = links.filter((link) => lit(link) || link[2] >= DRAWN).map((link) => {
        const [a, b] = end(rows[0].chips[link[0]], true, frame, down);
        const [c, d] = end(rows[1].chips[link[1]], false, frame, down);
        const bend = down ? `${(a + c) / 2} ${b} ${(a + c) / 2} ${d}` : `${a} ${(b + d) / 2} ${c} ${(b + d) / 2}`;
        const faded = active !== null && !lit(link);
        const width = (0.5 + 5 * link[2]).toFixed(2);
        const opacity = faded ? 0.12 : (0.2 + 0.8 * link[2]).toFixed(2);
        return draw("path", { d: `M${a} ${b}C${bend} ${c} ${d}`, "stroke-width": width, "stroke-opacity": opacity });
      });
      lines.replaceChildren(...paths);
    };
    const fit = () => {
      box.classList.remove("down");
      box.classList.toggle("down", rows.some((row) => row.line.scrollWidth > row.line.clientWidth + 1));
      join();
    };
    box.append(rows[0].line, lines, rows[1].line);
    new ResizeObserver(fit).observe(box);
    return make("div", {}, about("alignment"), box, says);
  }

  function attentionPanel(attention, state, open) {
    const panel = make("div");
    const maps = attention.maps.filter((one) => one.part === state.part);
    if (state.part === "rollout") {
      const found = attention.rollout;
      panel.append(about("rollout"), detail(attention, found.weights, [found.rows, found.columns], state.unit));
      return panel;
    }
    const several = maps.length > 1 || maps[0].heads.length > 1;
    if (!several) {
      panel.append(make("p", { class: "about" }, "This model has one attention head in one layer."));
      panel.append(detail(attention, maps[0].heads[0], [maps[0].rows, maps[0].columns], state.unit));
      return panel;
    }
    const views = { heads: "All heads", mean: "Average" };
    panel.append(choice("How to see it", views, state.view, (view) => open({ view, head: null })), about(state.view));
    if (state.view === "mean") {
      const all = maps.flatMap((one) => one.heads);
      panel.append(detail(attention, mean(all), [maps[0].rows, maps[0].columns], state.unit));
      return panel;
    }
    panel.append(headsGrid(attention, maps, state, open));
    if (state.head) panel.append(headPanel(attention, maps, state, open));
    return panel;
  }

  const patternsOf = (attention, name, head) => attention.patterns.filter((pattern) => pattern.map === name && pattern.head === head);

  function headsGrid(attention, maps, state, open) {
    const grid = make("div", { class: "heads", role: "group", "aria-label": "Heads by layer" });
    const buttons = [];
    maps.forEach((one) => {
      const sides = [one.rows, one.columns].map((side) => itemsOf(attention, side, state.unit));
      const row = make("div", { class: "layer" }, small(`Layer ${one.layer + 1}`));
      one.heads.forEach((weights, head) => {
        const picked = headButton(attention, one, head, state, open);
        picked.prepend(picture(gathered(weights, ...sides), grid));
        buttons.push(picked);
        row.append(picked);
      });
      grid.append(row);
    });
    roving(grid, buttons, maps[0].heads.length);
    return grid;
  }

  function headButton(attention, one, head, state, open) {
    const pattern = patternsOf(attention, one.name, head)[0];
    const name = `Layer ${one.layer + 1}, head ${head + 1}${pattern ? `: ${pattern.pattern}` : ""}`;
    const chosen = state.head !== null && state.head[0] === one.name && state.head[1] === head;
    const attributes = {
      class: "head",
      title: name,
      "aria-label": name,
      "aria-pressed": String(chosen),
      "data-key": `${one.name} ${head}`,
      onclick: () => open({ head: chosen ? null : [one.name, head] }),
    };
    return button(attributes, make("span", { class: "pattern" }, pattern ? pattern.pattern : ""));
  }

  function headPanel(attention, maps, state, open) {
    const [name, head] = state.head;
    const one = maps.find((map) => map.name === name);
    const title = `Layer ${one.layer + 1}, head ${head + 1}`;
    const order = maps.flatMap((map) => map.heads.map((_, n) => [map.name, n]));
    const here = order.findIndex(([other, n]) => other === name && n === head);
    const step = (by, text) => {
      const next = order[(here + by + order.length) % order.length];
      return button({ class: "plain", "data-key": text, onclick: () => open({ head: next }) }, text);
    };
    const close = button({ class: "plain", onclick: () => open({ head: null }) }, "Close");
    const patterns = patternsOf(attention, name, head).map((pattern) =>
      make("p", { class: "about" }, bold(patternName(pattern.pattern)), ` (${percent(pattern.score)}): ${pattern.says}`),
    );
    return make(
      "section",
      { class: "one", "aria-label": title },
      make("div", { class: "bar" }, make("h3", {}, title), step(-1, "← Previous"), step(1, "Next →"), close),
      ...patterns,
      detail(attention, one.heads[head], [one.rows, one.columns], state.unit),
    );
  }

  const patternName = (pattern) => PATTERNS[pattern] || capital(pattern);

  function patternsPanel(attention, show) {
    const panel = make("div", {}, about("patterns"));
    const kinds = [...new Set(attention.patterns.map((pattern) => pattern.pattern))];
    for (const kind of kinds) {
      const found = attention.patterns.filter((pattern) => pattern.pattern === kind);
      const heads = found.map((pattern) => headLink(attention, pattern, show));
      const about = make("p", { class: "about" }, found[0].says);
      const section = make("section", { class: "patterns" }, make("h3", {}, patternName(kind)), about);
      section.append(make("div", { class: "line" }, ...heads.slice(0, SHOWN)));
      const more = heads.slice(SHOWN);
      const label = make("summary", {}, `and ${more.length} more`);
      if (more.length) section.append(make("details", {}, label, make("div", { class: "line" }, ...more)));
      panel.append(section);
    }
    if (!kinds.length) panel.append(make("p", {}, "No head follows a known pattern. A longer text shows more."));
    return panel;
  }

  function headLink(attention, pattern, show) {
    const one = attention.maps.find((map) => map.name === pattern.map);
    const where = attention.kind === "translator" ? `${partName(attention, one.part)}, layer ` : "Layer ";
    const link = button({ class: "plain share", onclick: () => show(one, pattern.head) });
    link.append(`${where}${one.layer + 1}, head ${pattern.head + 1} `, make("span", { class: "number" }, percent(pattern.score)));
    link.style.setProperty("--share", pattern.score.toFixed(3));
    return link;
  }

  function attributionPanel(attention, state) {
    const found = attention.attribution;
    const source = itemsOf(attention, "source", state.unit);
    const sum = (values, positions) => positions.reduce((total, position) => total + values[position], 0);
    const line = wordLine(source, "Words of the source");
    const says = make("p", { class: "says", "aria-live": "polite" });
    const paint = (values, of) => {
      const shares = source.map((item) => sum(values, item.positions));
      const most = Math.max(...shares.map(Math.abs)) || 1;
      line.chips.forEach((one, n) => {
        shade(one, Math.abs(shares[n]) / most, shares[n] < 0);
        one.title = `${source[n].text}: ${shares[n].toFixed(3)}`;
      });
      const ranked = source.map((item, n) => [item.text, shares[n]]).sort((a, b) => b[1] - a[1]);
      const some = (list) => list.slice(0, 3).map(([text, value]) => `${text} (${value.toFixed(2)})`).join(", ") || "nothing";
      const above = ranked.filter(([, value]) => value > 0);
      const below = ranked.filter(([, value]) => value < 0).reverse();
      says.replaceChildren(`For ${of}: `, bold(some(above)), ". Against it: ", bold(some(below)), ".");
    };
    const panel = make("div", {}, about("attribution"));
    if (found.each) {
      const target = itemsOf(attention, "target", state.unit);
      const whole = { text: "all of it", mark: true, positions: attention.target.map((_, position) => position) };
      const items = [whole, ...target];
      const choose = (n) => {
        chooser.chips.forEach((one, m) => one.setAttribute("aria-pressed", String(n === m)));
        const values = attention.source.map((_, s) => items[n].positions.reduce((total, t) => total + found.each[t][s], 0));
        paint(values, n ? `“${items[n].text}”` : found.of);
      };
      const chooser = wordLine(items, "Words that were written: choose one", choose);
      panel.append(make("div", { class: "pointing" }, small("For writing"), chooser.line));
      panel.append(make("div", { class: "pointing" }, small("these contributed"), line.line));
      choose(0);
    } else {
      panel.append(make("p", {}, `Attributed output: ${found.of}.`), line.line);
      paint(found.values, found.of);
    }
    panel.append(says);
    return panel;
  }

  function innerPanel(attention) {
    const panel = make("div");
    if (attention.positions) {
      const figure = make("figure", {}, make("h3", {}, "Position encodings"), about("positions"));
      const canvas = picture(attention.positions, panel, 0.98);
      canvas.classList.add("wide");
      const [rows, columns] = [attention.positions.length, attention.positions[0].length];
      const caption = `${rows} positions downwards, ${columns} dimensions across; blue is above 0, orange below.`;
      figure.append(canvas, make("figcaption", {}, caption));
      panel.append(figure);
    }
    const colours = attention.target ? "Blue: tokens of the source. Orange: tokens of the translation." : "Each point is a token.";
    const title = make("h3", {}, "Embeddings");
    panel.append(make("figure", {}, title, about("points"), pointMap(attention), make("figcaption", {}, colours)));
    return panel;
  }

  function pointMap(attention) {
    const [width, height, edge] = [window.innerWidth < 600 ? 360 : 640, 400, 30];
    const seen = new Map(); // each token once, without special tokens, which lie far from all words
    for (const [side, points] of Object.entries(attention.points)) {
      points.forEach((point, n) => {
        const token = attention[side][n];
        if (attention[`${side}_words`][n] !== null) seen.set(`${side} ${token}`, { point, side, text: bare(token) });
      });
    }
    const all = [...seen.values()];
    const range = (axis) => {
      const values = all.map((one) => one.point[axis]);
      return [Math.min(...values), Math.max(...values)];
    };
    const [xs, ys] = [range(0), range(1)];
    const at = (value, [low, high], size) => edge + ((value - low) / (high - low || 1)) * (size - 2 * edge);
    const taken = [];
    const dots = all.map(({ point, side, text }) => {
      const [x, y] = [at(point[0], xs, width), height - at(point[1], ys, height)];
      const position = room(x, y, 7.5 * text.length, [width, height], taken);
      const label = position ? [draw("text", { x: position[0], y: position[1] + 11 }, text)] : [];
      return draw("g", { class: side }, draw("title", {}, text), draw("circle", { cx: x, cy: y, r: 3.5 }), ...label);
    });
    const label = `A map of ${all.length} tokens`;
    return draw("svg", { class: "points", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ...dots);
  }

  /** A free position for a label beside a point; null if there is no room, and the point has only a tooltip. */
  function room(x, y, wide, [width, height], taken) {
    const high = 14;
    for (const [left, top] of [[x + 6, y - 7], [x - wide - 6, y - 7], [x - wide / 2, y - 20], [x - wide / 2, y + 6]]) {
      const inside = left >= 0 && left + wide <= width && top >= 0 && top + high <= height;
      const free = taken.every(([l, t, w]) => left + wide < l || l + w < left || top + high < t || t + high < top);
      if (inside && free) {
        taken.push([left, top, wide]);
        return [left, top];
      }
    }
    return null;
  }

  function about(name) {
    return make("p", { class: "about" }, ABOUT[name]);
  }

  const TRANSLATOR = {
    encoder: "Reading the source",
    decoder: "Looking back at its own words",
    cross: "From translation to source",
  };

  function partName(attention, part) {
    if (part === "rollout") return "Through all layers";
    if (attention.kind === "generator") return "Looking back";
    if (attention.kind === "encoder") return "Within the text";
    return TRANSLATOR[part];
  }

  /** A row of radio buttons. */
  function choice(label, names, chosen, choose) {
    const group = make("div", { class: "choice", role: "radiogroup", "aria-label": label });
    const buttons = Object.entries(names).map(([name, text]) => {
      const attributes = { role: "radio", "aria-checked": String(name === chosen), "data-key": `${label} ${name}` };
      const other = () => name !== chosen && choose(name);
      return button({ ...attributes, onclick: other, onfocus: other }, text);
    });
    group.append(...buttons);
    roving(group, buttons);
    buttons.forEach((button) => button.setAttribute("tabindex", button.getAttribute("aria-checked") === "true" ? "0" : "-1"));
    return group;
  }

  const CLOSES = /^[.,;:!?…)\]}%”»。，、！？：；）」]/;
  const OPENS = /[([{“«（「]$/;
  const SPACELESS = "[\\u3040-\\u30ff\\u3400-\\u9fff]";

  /** Words as a sentence: no space before closing punctuation, nor between characters of scripts without spaces. */
  function sentence(list) {
    const ends = new RegExp(`${SPACELESS}$`);
    const begins = new RegExp(`^${SPACELESS}`);
    return list.reduce((text, word) => {
      const close = !text || CLOSES.test(word) || OPENS.test(text) || (ends.test(text) && begins.test(word));
      return text + (close ? "" : " ") + word;
    }, "");
  }

  /** The input and the output. */
  function summary(attention) {
    const source = sentence(attention.words.source);
    if (!attention.output) return make("div", { class: "summary" }, words(source));
    const said = { translator: "was translated as", encoder: "the model says", generator: "the model went on with" }[attention.kind];
    const output = attention.output.trim();
    const read = attention.kind === "generator" && source.endsWith(output) ? source.slice(0, source.length - output.length) : source;
    const arrow = make("span", { class: "arrow", role: "img", "aria-label": said, title: said }, "→");
    return make("div", { class: "summary" }, words(read), arrow, words(output));
  }

  let count = 0; // viewers so far, for unique ids

  function show(element, attention) {
    const number = (count += 1);
    const parts = [...new Set(attention.maps.map((one) => one.part))];
    const first = parts.includes("cross") ? "cross" : parts[0];
    const state = { tab: null, part: first, view: "heads", head: null, unit: firstUnit(attention) };
    const tabs = {
      alignment: attention.alignment && attention.alignment.length ? "Word by word" : null,
      attention: "Attention",
      patterns: "Head patterns",
      attribution: attention.attribution ? "What mattered" : null,
      inner: "Positions and embeddings",
    };
    const names = Object.keys(tabs).filter((name) => tabs[name]);
    state.tab = names[0];

    element.replaceChildren();
    element.classList.add("qkv-viewer");
    const list = make("div", { class: "tabs", role: "tablist", "aria-label": "What to see" });
    const tools = make("div", { class: "tools" });
    const panel = make("div", { role: "tabpanel", class: "panel", id: `qkv-panel-${number}` });
    const buttons = names.map((name) => {
      const chosen = () => open({ tab: name });
      const attributes = { role: "tab", id: `qkv-tab-${number}-${name}`, "aria-controls": panel.id };
      return button({ ...attributes, onclick: chosen, onfocus: chosen }, tabs[name]);
    });
    list.append(...buttons);
    roving(list, buttons);
    element.append(summary(attention), list, tools, panel);

    function open(change) {
      const before = { ...state };
      Object.assign(state, change);
      if (change.tab === before.tab && change.tab !== undefined && panel.childNodes.length) return;
      if (change.part && change.part !== before.part) Object.assign(state, { head: change.head || null });
      buttons.forEach((button, n) => {
        button.setAttribute("aria-selected", String(names[n] === state.tab));
        button.setAttribute("tabindex", names[n] === state.tab ? "0" : "-1");
      });
      panel.setAttribute("aria-labelledby", `qkv-tab-${number}-${state.tab}`);
      fill();
    }

    function openHead(one, head) {
      open({ tab: "attention", part: one.part, view: "heads", head: [one.name, head] });
    }

    function fill() {
      const held = element.contains(document.activeElement) ? document.activeElement.getAttribute("data-key") : null;
      const all = attention.rollout ? [...parts, "rollout"] : parts;
      const choices = Object.fromEntries(all.map((part) => [part, partName(attention, part)]));
      tools.replaceChildren();
      if (state.tab === "attention" && all.length > 1) {
        tools.append(choice("Which attention", choices, state.part, (part) => open({ part })));
      }
      if (inPieces(attention) && ["alignment", "attention", "attribution"].includes(state.tab)) {
        const units = { words: "Words", tokens: "Pieces" };
        tools.append(choice("Words or pieces of words", units, state.unit, (chosen) => open({ unit: chosen })));
      }
      const panels = {
        alignment: () => alignmentPanel(attention, state),
        attention: () => attentionPanel(attention, state, open),
        patterns: () => patternsPanel(attention, openHead),
        attribution: () => attributionPanel(attention, state),
        inner: () => innerPanel(attention),
      };
      panel.replaceChildren(panels[state.tab]());
      const again = held && [...element.querySelectorAll("[data-key]")].find((one) => one.getAttribute("data-key") === held);
      if (again) again.focus();
    }

    open({ tab: state.tab });
  }

  /** The words of a translation and of its source alone, with the lines between them. */
  function alignment(element, attention) {
    element.classList.add("qkv-viewer");
    element.replaceChildren(alignmentPanel(attention, { unit: firstUnit(attention) }));
  }

  window.QkvViewer = { show, alignment };
})();
